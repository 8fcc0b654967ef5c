# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that try to leave the sandbox, run from a process of any user or container.

`python sandbox_probes.py KIND SECRET [CONTAINER]` prints a JSON object: what each wrote, or the
error of the sandbox. CONTAINER is "container" for the rules of a container runtime's default
profile, or "no-landlock" for a kernel without Landlock and bwrap.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import textwrap

from reward_server.sandbox import seccomp
from reward_server.sandbox.sandbox import Sandbox, SandboxError

_UNSHARE, _MOUNT, _SETNS, _CLONE, _PIVOT_ROOT, _LANDLOCK = 272, 165, 308, 56, 155, 444
_CAPABILITIES = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap"
    ",+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)

_SYSCALL = "import ctypes\nif ctypes.CDLL(None).syscall({}) < 0: raise OSError\n"
# Each must raise OSError or MemoryError.
PROBES = {
    "inet socket": "socket.socket(socket.AF_INET)",
    "unix socket": "socket.socket(socket.AF_UNIX)",
    "netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "datagram pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "connect a pair": "socket.socketpair()[0].connect('\\0x')",
    "bind a pair": "socket.socketpair()[0].bind('name')",
    "read a secret": "open(SECRET)",
    "read a system file": "open('/etc/passwd')",
    "list root's home": "os.listdir('/root')",
    "list the folder above": "os.listdir('..')",
    "write above": "open('../shardward-escaped', 'w')",
    "make a folder above": "os.mkdir('../shardward-escaped')",
    "write a secret": "open(SECRET, 'a')",
    "truncate a secret": "os.truncate(SECRET, 0)",
    "change a mode": "os.chmod(SECRET, 0o777)",
    "change a time": "os.utime(SECRET)",
    "remove a secret": "os.unlink(SECRET)",
    "rename a secret": "os.rename(SECRET, 'mine')",
    "follow a symlink": "os.symlink(SECRET, 'link')\nopen('link')",
    "follow a folder": "os.symlink('/etc', 'etc')\nopen('etc/passwd')",
    "link a secret": "os.link(SECRET, 'hard')\nopen('hard')",
    "signal the client": "os.kill(CLIENT, 0)",
    "signal the zygote": "os.kill(ZYGOTE, 0)",
    "limit the client": "resource.prlimit(CLIENT, resource.RLIMIT_NOFILE, (3, 3))",
    "client's environment": "open(f'/proc/{CLIENT}/environ')",
    "zygote's environment": "open(f'/proc/{ZYGOTE}/environ')",
    "client's memory": "open(f'/proc/{CLIENT}/mem', 'r+')",
    "zygote's memory": "open(f'/proc/{ZYGOTE}/mem', 'r+')",
    "client's command": "open(f'/proc/{CLIENT}/cmdline')",
    "client's files": "os.listdir(f'/proc/{CLIENT}/fd')",
    "ptrace": _SYSCALL.format("101, 0, 0, 0, 0"),
    "read other memory": _SYSCALL.format("310, CLIENT, 0, 0, 0, 0, 0"),
    "user namespace": _SYSCALL.format("272, 0x10000000"),
    "clone into a namespace": _SYSCALL.format("56, 0x10000011, 0, 0, 0, 0"),
    "clone3": _SYSCALL.format("435, 0, 0"),
    "mount": _SYSCALL.format("165, b'x', b'.', b'tmpfs', 0, 0"),
    "chroot": "os.chroot('.')",
    "bpf": _SYSCALL.format("321, 0, 0, 0"),
    "keyring": _SYSCALL.format("250, 0, -3, 0, 0, 0"),
    "io_uring": _SYSCALL.format("425, 1, 0"),
    "userfaultfd": _SYSCALL.format("323, 1"),
    "perf": _SYSCALL.format("298, 0, 0, -1, -1, 0"),
    "shared memory": _SYSCALL.format("29, 0, 4096, 0o1600"),
    "32-bit numbers": _SYSCALL.format("0x40000000 + 41, 2, 1, 0"),
    "become root": "os.setuid(0)",
    "memory": "bytearray(3 * 2**30)",
    "one big file": "open('big', 'wb').write(b'0' * 2**26)",
    "many open files": "[open('/dev/null') for _ in range(100)]",
    "shared memory file": "open('/dev/shm/shardward-escaped', 'w')",
    "many processes": "[os.fork() or time.sleep(60) for _ in range(200)]",
    "many threads": "for _ in range(200): threading.Thread(target=time.sleep, args=(60,)).start()",
    "another program": "os.execv('/bin/true', ['true'])",
}
_LEADER = "import os, resource, socket, sys, threading, time\nZYGOTE = os.getppid()\n"


def _program(probe: str, secret: str) -> str:
    names = f"SECRET, CLIENT = {secret!r}, {os.getpid()}\n"
    body = textwrap.indent(probe, "    ")
    return (
        f"{_LEADER}{names}try:\n{body}\n"
        "except (OSError, MemoryError, RuntimeError):\n"
        "    os.write(1, b'stopped')\n    os._exit(0)\n"
        "os.write(1, b'open')\nos._exit(0)\n"
    )


def _deny_as_container(*, landlock: bool) -> None:
    """Denies what the runtimes' default profile denies, and Landlock too if told to."""
    denied = [_UNSHARE, _MOUNT, _SETNS, _PIVOT_ROOT]
    parts = [seccomp._statement(seccomp._LOAD, seccomp._NUMBER)]
    for number in denied:
        parts += seccomp._deny(number)
    if landlock:
        parts += seccomp._deny(_LANDLOCK, errno.EOPNOTSUPP)
    namespaces = seccomp._statement(seccomp._JUMP_BITS, seccomp._NAMESPACES, 0, 1)
    parts += seccomp._deny_if(_CLONE, [seccomp._argument(0), namespaces])
    parts.append(seccomp._statement(seccomp._RETURN, seccomp._ALLOW))
    seccomp.apply(b"".join(parts))


def main() -> None:
    """Runs every probe."""
    kind, secret, *container = sys.argv[1:]
    if container:
        _deny_as_container(landlock=container == ["no-landlock"])
        again = [sys.executable, __file__, kind, secret]
        os.execvp("setpriv", ["setpriv", f"--bounding-set={_CAPABILITIES}", *again])
    results = {}
    try:
        with Sandbox(kind) as sandbox:
            results["kind"] = sandbox.kind
            for name, probe in PROBES.items():
                source = _program(probe, secret)
                result = sandbox.program([source], stdin=b"", timeout_s=30)
                results[name] = result.output.decode()
    except SandboxError as error:
        results["error"] = str(error)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
