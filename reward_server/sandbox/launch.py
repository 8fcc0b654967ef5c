# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a zygote, under bubblewrap if told to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_START = (
    "import json, os, sys\n"
    "arguments = json.loads(sys.argv[1])\n"
    # An orphan in a session of its own: only its socket ends it.
    "if arguments['detach']:\n"
    "    if os.fork(): os._exit(0)\n"
    "    os.setsid()\n"
    "if arguments['under']:\n"
    "    command = arguments['under'] + arguments['python']\n"
    "    inner = json.dumps(arguments | {'detach': False, 'under': []})\n"
    "    os.execv(command[0], command + [inner])\n"
    "sys.path.insert(0, arguments['root'])\n"
    "from reward_server.sandbox import zygote\n"
    "sys.path.remove(arguments['root'])\n"
    "zygote.main(arguments)\n"
)
_READABLE = ("/lib", "/lib64", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime")
_START_S = 60.0


def launch(sandbox: str) -> socket.socket:
    """Starts a zygote; returns the socket that keeps it alive.

    Args:
        sandbox: "landlock", "bwrap" or "none".

    Raises:
        OSError: it cannot be started, or this kind of sandbox does not work here.
    """
    # The real file: without site packages the one of a virtual environment does no more.
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", _START]
    parent = "/tmp" if sandbox == "bwrap" else tempfile.gettempdir()  # noqa: S108 - its own
    arguments = {
        "root": str(_ROOT),
        "sandbox": sandbox,
        "parent": parent,
        "python": python,
        "under": _bwrap(python[0]) if sandbox == "bwrap" else [],
        "detach": True,
    }
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.ExitStack() as failed, theirs:
        failed.enter_context(ours)
        process = subprocess.Popen(  # noqa: S603 - our own module, fixed arguments
            [*python, json.dumps({**arguments, "fd": theirs.fileno()})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={},
            cwd="/",
        )
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise OSError(f"its process did not start within {_START_S:g} s") from None
        theirs.close()
        ours.settimeout(_START_S)
        reply = json.loads(ours.recv(4096) or b'{"problem": "its process ended"}')
        if "problem" in reply:
            raise OSError(reply["problem"])
        failed.pop_all()
    return ours


def _bwrap(python: str) -> list[str]:
    found = shutil.which("bwrap")
    if found is None:
        raise OSError("there is no bwrap on the PATH")
    package = str(Path(__file__).parents[1])
    command = [found, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
    command += ["--ro-bind", "/usr", "/usr"]
    # Root stays root inside, to give each run a user of its own.
    command += ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if os.geteuid():
        command += ["--unshare-user"]
    for path in _READABLE:
        command += ["--ro-bind-try", path, path]
    for path in (sys.base_prefix, f"{package}/__init__.py", f"{package}/sandbox"):
        command += ["--ro-bind", path, path]
    if not python.startswith(sys.base_prefix):
        command += ["--ro-bind", python, python]
    return [*command, "--"]
