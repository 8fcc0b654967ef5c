# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Looks after children at work: none runs longer or takes more memory than it may."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from reward_server.batch import RowStatus
from reward_server.shared_memory import Word, is_late

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reward_server.calls import Chunk
    from reward_server.child_process import ChildProcess
    from reward_server.children import Children

# Beats come every 50 ms; a machine under load may delay one.
BEAT_SLACK_S = 0.25

_logger = logging.getLogger(__name__)


class Watch:
    """Replaces children that are beyond their limits, and notes why at what they were doing.

    Args:
        children: all of them.
        busy: what each of them works on; the pool keeps it.
        limits_s: seconds of each function for a row.
        max_rss_bytes: memory of a child with its descendants.

    Attributes:
        beat_limit_s: seconds without a beat of an event loop, or None if no function is async.
    """

    def __init__(
        self,
        children: Children,
        busy: Mapping[ChildProcess, Chunk],
        *,
        limits_s: Sequence[float],
        max_rss_bytes: int,
    ) -> None:
        self._children = children
        self._busy = busy
        self._limits_s = limits_s
        self._max_rss_bytes = max_rss_bytes
        self.beat_limit_s: float | None = None

    def tick(self, *, memory: bool) -> None:
        """Looks at the clocks of all, and at their memory if told so."""
        for child, chunk in list(self._busy.items()):
            if chunk.killed is None:
                self._check_time(child, chunk)
        if memory:
            for child in self._children:
                self._check_memory(child)

    def _check_time(self, child: ChildProcess, chunk: Chunk) -> None:
        header = child.shared.header
        row, index, beat = header[Word.ROW], header[Word.FUNCTION], header[Word.BEAT]
        if beat and self.beat_limit_s is not None:
            if time.monotonic_ns() - beat > self.beat_limit_s * 1e9:
                message = f"blocked the event loop for more than {self.beat_limit_s:g} s"
                self._kill(chunk, -1, RowStatus.TIMEOUT, message)
        elif is_late(header, self._limits_s):
            message = f"ran longer than {self._limits_s[index]:g} s"
            self._kill(chunk, row, RowStatus.TIMEOUT, message)

    def _check_memory(self, child: ChildProcess) -> None:
        limit = self._max_rss_bytes
        rss = child.rss_bytes(limit)
        if rss <= limit:
            return
        chunk = self._busy.get(child)
        if chunk is None:
            _logger.warning("child replaced child_pid=%d rss_bytes=%d", child.pid, rss)
            self._children.replace(child)
        elif chunk.killed is None:
            row = child.shared.header[Word.ROW]
            message = (
                f"its process used {rss} bytes of memory, more than max_child_rss_bytes={limit}"
            )
            self._kill(chunk, row, RowStatus.OOM, message)

    def _kill(self, chunk: Chunk, row: int, status: RowStatus, message: str) -> None:
        chunk.killed = (status, message)
        chunk.suspect = row
        self._children.replace(chunk.child, trace=True)
