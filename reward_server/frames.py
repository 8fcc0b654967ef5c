# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a child process and its parent share: frames on a socket and a block of memory.

A frame is two little-endian u32 (bytes of JSON, bytes of binary), the JSON and the binary. The
memory holds what must survive a killed child: where it is and every finished row.
"""

from __future__ import annotations

import json
import mmap
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PREFIX = struct.Struct("<II")
_HEADER_WORDS = 16


class Word:
    """Words of the header, int64 each; times are `time.monotonic_ns`."""

    # Plain integers: an enum's cost some microseconds a row.

    ROW = 0  # row of the chunk being scored; -1 outside sync functions
    FUNCTION = 1  # function being run or, at the start, loaded
    STARTED = 2  # when it started; 0 while no function runs
    STOP_AT = 3  # first row not to start; the parent lowers it to steal rows
    DECODE = 4  # nanoseconds of decoding in this chunk
    BEAT = 5  # last sign of life of the event loop; 0 while it does not run
    ROW_STARTED = 6  # when the row started
    FIRST_STARTED = 7  # when the first row of the chunk started
    JUDGED = 8  # 1 once all async and group functions of the chunk are through
    ROWS = 9  # rows that the function is run on, from ROW; 0 means 1


def encode(header: dict[str, Any], binary: Sequence[memoryview] = ()) -> list[memoryview]:
    """Makes a frame, in parts to be sent one after the other."""
    text = json.dumps(header).encode()
    prefix = PREFIX.pack(len(text), sum(part.nbytes for part in binary))
    return [memoryview(prefix + text), *(part for part in binary if part.nbytes)]


def decode(read: Callable[[int], bytearray]) -> tuple[dict[str, Any], bytes]:
    """Reads a frame with a function that reads exactly so many bytes."""
    text, binary = PREFIX.unpack(read(PREFIX.size))
    return json.loads(read(text)), bytes(read(binary))


def split(buffer: bytearray) -> list[dict[str, Any]]:
    """Takes the JSON of every whole frame off the front of a buffer."""
    found = []
    while len(buffer) >= PREFIX.size:
        text, binary = PREFIX.unpack_from(buffer)
        end = PREFIX.size + text + binary
        if len(buffer) < end:
            break
        found.append(json.loads(buffer[PREFIX.size : PREFIX.size + text]))
        del buffer[:end]
    return found


class Shared:
    """Views of the memory shared by one child and its parent.

    Attributes:
        header: int64 words, see `Word`.
        score_ns: int64 [F], nanoseconds in each function in this chunk.
        row_ns: int64 [rows], nanoseconds in all functions of a row.
        statuses: uint8 [rows], `RowStatus` values, 0 until a row is finished.
        rewards: float64 [rows, F].
    """

    def __init__(self, fd: int, *, rows: int, functions: int) -> None:
        self._memory = mmap.mmap(fd, self.size(rows=rows, functions=functions))
        whole = memoryview(self._memory)
        end = 8 * (_HEADER_WORDS + functions)
        # Plain views: item access is several times faster than with NumPy.
        self.header = whole[: 8 * _HEADER_WORDS].cast("q")
        self.score_ns = whole[8 * _HEADER_WORDS : end].cast("q")
        self.rewards_flat = whole[end : end + 8 * rows * functions].cast("d")
        end += 8 * rows * functions
        self.row_ns_flat = whole[end : end + 8 * rows].cast("q")
        self.statuses_flat = whole[end + 8 * rows :][:rows]
        self.rewards = np.frombuffer(self.rewards_flat.cast("B"), np.float64).reshape(
            rows, functions
        )
        self.row_ns = np.frombuffer(self.row_ns_flat.cast("B"), np.int64)
        self.statuses = np.frombuffer(self.statuses_flat, np.uint8)

    @staticmethod
    def size(*, rows: int, functions: int) -> int:
        """Bytes needed."""
        return 8 * (_HEADER_WORDS + functions) + 8 * rows * functions + 9 * rows

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
