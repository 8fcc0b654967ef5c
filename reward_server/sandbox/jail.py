# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The jail: what a forked process does to itself before it sees any code."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import random
import resource
import signal
from pathlib import Path

from reward_server.sandbox import landlock, seccomp

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_MAX_FILE_BYTES = 16 * 2**20
_MAX_OPEN_FILES = 64
_STACK_BYTES = 64 * 2**20
# Other processes of the same user count, too, where the sandbox cannot have a user of its own.
_MAX_PROCESSES = 32
_TOP_UID = 2**31

_libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """What is the same for every run.

    Attributes:
        ruleset: descriptor of the Landlock rules, or None.
        filter_program: seccomp filter, or None.
        uids: users to pick from, or None to keep ours.
    """

    ruleset: int | None
    filter_program: bytes | None
    uids: range | None

    def pick_uid(self) -> int | None:
        """Picks a user that hardly any other run has."""
        return None if self.uids is None else random.SystemRandom().choice(self.uids)


def find_uids() -> range | None:
    """Finds users that nobody else is likely to be; None unless we are root.

    Raises:
        OSError: we are root and cannot become anybody else.
    """
    if os.geteuid():
        return None
    ends = [0]
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = (int(word) for word in line.split())
        ends.append(min(first + count, _TOP_UID))
    end = max(ends)
    if end < 1000:
        raise OSError(
            "root without other users to become cannot limit processes; run as another user"
        )
    return range(end // 2, end)


def enter(jail: Jail, *, uid: int | None, memory_bytes: int, cpu_s: int, folder: Path) -> None:
    """Locks this process up; there is no way back.

    Args:
        jail: what is the same for every run.
        uid: user to become, or None.
        memory_bytes: address space of each process.
        cpu_s: CPU seconds of each process.
        folder: working folder.

    Raises:
        OSError: a step failed; no code may be run.
    """
    os.chdir(folder)
    os.umask(0o077)
    used = 0 if uid is not None else _count_own_tasks()
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_NPROC, used + _MAX_PROCESSES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_STACK, _STACK_BYTES),
    ):
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if jail.ruleset is not None:
        landlock.restrict(jail.ruleset)
    if jail.filter_program is not None:
        seccomp.apply(jail.filter_program)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def _count_own_tasks() -> int:
    uid, count = os.getuid(), 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            # It may end while we look.
            with contextlib.suppress(OSError):
                if process.stat().st_uid == uid:
                    count += len(list((process / "task").iterdir()))
    return count


def check() -> str | None:
    """Tries what must fail in a jail; returns what did not fail, or None."""
    import socket  # noqa: PLC0415 - only here

    try:
        socket.socket().close()
    except PermissionError:
        pass
    else:
        return "a network socket could be made"
    try:
        os.close(os.open("/etc/passwd", os.O_RDONLY))
    except (PermissionError, FileNotFoundError):
        pass
    else:
        return "/etc/passwd could be read"
    try:
        os.setuid(0)
    except OSError:
        return None
    return "root could be had"
