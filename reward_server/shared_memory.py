# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The memory that a child process shares with its parent: what must survive a killed child.

Where the child is, every finished row, and the clock of a user's code: the parent reads when the
code began and kills the child in time, whatever the code does.
"""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER_WORDS = 16
_TRACE_BYTES = 16 * 2**10


class Word:
    """Words of the header, int64 each; times are `time.monotonic_ns`."""

    # Plain integers: an enum's cost some microseconds a row.

    ROW = 0  # row of the chunk being scored; -1 outside sync functions
    FUNCTION = 1  # function being run or, at the start, loaded; -1 before the first
    STARTED = 2  # when it started; 0 while no function runs
    STOP_AT = 3  # first row not to start; the parent lowers it, to 0 if nobody wants the rows
    DECODE = 4  # nanoseconds of decoding in this chunk
    BEAT = 5  # last sign of life of the event loop; 0 while it does not run
    ROW_STARTED = 6  # when the row started
    FIRST_STARTED = 7  # when the first row of the chunk started
    JUDGED = 8  # 1 once all async and group functions of the chunk are through
    ROWS = 9  # rows that the function is run on, from ROW; 0 means 1


class Shared:
    """Views of the memory shared by one child and its parent.

    Attributes:
        header: int64 words, see `Word`.
        score_ns: int64 [F], nanoseconds in each function in this chunk.
        row_ns: int64 [rows], nanoseconds in all functions of a row.
        statuses: uint8 [rows], `RowStatus` values, 0 until a row is finished.
        rewards: float64 [rows, F].
        trace_at: offset of the text that `faulthandler` writes when the child is killed.
    """

    def __init__(self, fd: int, *, rows: int, functions: int) -> None:
        size = self.size(rows=rows, functions=functions)
        self._memory = mmap.mmap(fd, size)
        whole = memoryview(self._memory)
        self.trace_at = size - _TRACE_BYTES
        end = 8 * (_HEADER_WORDS + functions)
        # Plain views: item access is several times faster than with NumPy.
        self.header = whole[: 8 * _HEADER_WORDS].cast("q")
        self.score_ns = whole[8 * _HEADER_WORDS : end].cast("q")
        self.rewards_flat = whole[end : end + 8 * rows * functions].cast("d")
        end += 8 * rows * functions
        self.row_ns_flat = whole[end : end + 8 * rows].cast("q")
        self.statuses_flat = whole[end + 8 * rows :][:rows]
        self._trace = whole[self.trace_at :]
        self.rewards = np.frombuffer(self.rewards_flat.cast("B"), np.float64).reshape(
            rows, functions
        )
        self.row_ns = np.frombuffer(self.row_ns_flat.cast("B"), np.int64)
        self.statuses = np.frombuffer(self.statuses_flat, np.uint8)

    @staticmethod
    def size(*, rows: int, functions: int) -> int:
        """Bytes needed."""
        return 8 * (_HEADER_WORDS + functions) + 8 * rows * functions + 9 * rows + _TRACE_BYTES

    @property
    def trace(self) -> str:
        """Where the child was when it was killed, or ""."""
        return bytes(self._trace).partition(b"\0")[0].decode("utf-8", "replace")

    def clear(self, rows: int) -> None:
        """Makes the first `rows` rows unfinished, before a chunk is sent."""
        self.statuses[:rows] = 0
        self.rewards[:rows] = np.nan
        self.row_ns[:rows] = 0
        for i in range(len(self.score_ns)):
            self.score_ns[i] = 0
        for word in range(_HEADER_WORDS):
            self.header[word] = 0
        self.header[Word.ROW] = -1
        self.header[Word.STOP_AT] = rows


class Clock:
    """Runs while a user's code does: what the code is and since when, for the parent to read.

    Whatever calls such code, or an object that it made, does so inside: `__str__` of an exception
    and `__float__` of a result may hang like the function itself.

    Attributes:
        started_ns: when the code began, `time.monotonic_ns`.
        took_ns: nanoseconds that it took, once it has ended.

    Example:
        `with clock(index): value = function(...)`.
    """

    __slots__ = ("_header", "_index", "started_ns", "took_ns")

    def __init__(self, header: memoryview[int]) -> None:
        self._header = header
        self._index = 0
        self.started_ns = self.took_ns = 0

    def __call__(self, index: int) -> Clock:
        """Names the function that is to run."""
        self._index = index
        return self

    def __enter__(self) -> None:
        """Starts it."""
        self._header[Word.FUNCTION] = self._index
        self._header[Word.STARTED] = self.started_ns = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        """Stops it."""
        self.took_ns = time.monotonic_ns() - self.started_ns
        self._header[Word.STARTED] = 0


def is_late(header: memoryview[int], limits_s: Sequence[float]) -> bool:
    """Whether the code that runs in a child has had its time.

    Args:
        header: of the child.
        limits_s: seconds for each function.
    """
    index, started = header[Word.FUNCTION], header[Word.STARTED]
    return (
        started > 0
        and time.monotonic_ns() - started > limits_s[index] * 1e9
        # Read twice: code that ended in between is not late.
        and header[Word.STARTED] == started
    )
