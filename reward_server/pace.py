# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A rate that all child processes of a user on this machine keep together."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import struct
import time
from pathlib import Path

_FOLDERS = ("/dev/shm", "/tmp")  # noqa: S108 - opened with care below; TMPDIR is each child's own


class Pace:
    """Lets callers through one by one, evenly spaced.

    The time of the next turn is kept in a locked file, so that children need no process between
    them. Only the first in line of a process books a turn: callers that give up while they wait
    leave no gaps.

    Args:
        name: what the rate is for; processes that give the same name share it.
        per_minute: turns in a minute.

    Raises:
        OSError: the file cannot be opened, or is another user's.
    """

    def __init__(self, name: str, per_minute: float) -> None:
        self._interval_s = 60.0 / per_minute
        self._line = asyncio.Lock()
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        folder = next(f for f in _FOLDERS if Path(f).is_dir())
        path = f"{folder}/shardward-pace-{os.getuid()}-{digest}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        if os.fstat(self._fd).st_uid != os.getuid():
            os.close(self._fd)
            raise PermissionError(f"{path} must belong to this user. Remove it.")

    async def turn(self) -> None:
        """Waits for a turn."""
        async with self._line:
            await asyncio.sleep(self._book())

    def _book(self) -> float:
        """Takes the next turn and returns the seconds until then."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            data = os.pread(self._fd, 8, 0)
            now = time.monotonic()
            free = struct.unpack("d", data)[0] if len(data) == 8 else now
            turn = max(now, free)
            os.pwrite(self._fd, struct.pack("d", turn + self._interval_s), 0)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return turn - now
