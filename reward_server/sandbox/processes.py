# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes below the zygote: how much memory they use, and killing them all.

The zygote is their subreaper, so that one which leaves its parent and session is still below it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_KILL_S = 10.0
_PAUSE_S = 0.001


def descendants() -> list[int]:
    """Returns the processes below this one, but for those that have ended."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a fork bomb is faster than Path
        if not name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything.
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b") ")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def resident_bytes() -> int:
    """Returns the memory of all processes below this one; shared pages count for each."""
    pages = 0
    for pid in descendants():
        with contextlib.suppress(OSError):
            pages += int(Path("/proc", str(pid), "statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill_all() -> None:
    """Kills and reaps every process below this one.

    Raises:
        TimeoutError: some cannot be killed.
    """
    deadline = time.monotonic() + _KILL_S
    while _reap():
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {descendants()} are still there")
        # Stopped first, until there is no new one: killed one by one, a fork bomb would refill.
        stopped: set[int] = set()
        while new := set(descendants()) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        _signal(stopped, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def kill(pid: int, pidfd: int) -> int:
    """Kills and reaps a child; returns its exit code, negative for a signal.

    Raises:
        TimeoutError: it cannot be killed.
    """
    os.kill(pid, signal.SIGKILL)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if not poll.poll(_KILL_S * 1000):
        raise TimeoutError(f"process {pid} is still there")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _reap() -> bool:
    """Reaps children that have ended; says whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
