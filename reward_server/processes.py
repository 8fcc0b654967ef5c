# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Descendants of a process and the memory they take, read from /proc.

Imports next to nothing: `reward_server.supervisor` needs it in every child's first milliseconds.
"""

from __future__ import annotations

import contextlib
import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Lists the descendants of a process, parents first."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - as below
                with contextlib.suppress(OSError):
                    found += map(int, _read(f"/proc/{parent}/task/{thread}/children").split())
    return found[1:]


def memory_bytes(pids: list[int], *, limit: int) -> int:
    """Adds up the memory of processes; 0 for those that ended meanwhile.

    Args:
        pids: the processes.
        limit: above it, memory that forked processes share is counted once, which takes longer.
    """
    resident = {pid: _resident_bytes(pid) for pid in pids}
    total = sum(resident.values())
    if total <= limit or len(pids) == 1:
        return total
    return sum(_share_bytes(pid, resident[pid]) for pid in pids)


def _resident_bytes(pid: int) -> int:
    try:
        return _PAGE_BYTES * int(_read(f"/proc/{pid}/statm").split()[1])
    except (OSError, IndexError):
        return 0


def _share_bytes(pid: int, resident: int) -> int:
    """Memory of a process with its part of what is shared, or all of it if that can't be read.

    0 if it ended meanwhile: those that shared with it are read with a larger part.
    """
    try:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return 1024 * int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        pass
    return resident


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
        return file.read()
