# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows a child gets at a time, from what rows have taken so far."""

from __future__ import annotations

import math

MAX_CHUNK = 256
_FIRST_CHUNK = 16
_CHUNK_S = 0.025
_LEAST_CHUNK_S = 0.001
_SMOOTHING = 0.2


class ChunkSize:
    """Chunks of about 25 ms."""

    def __init__(self) -> None:
        self._row_s: float | None = None

    def observe(self, rows: int, took_s: float) -> None:
        """Takes note of a chunk that is done."""
        cost = took_s / max(1, rows)
        self._row_s = (
            cost if self._row_s is None else self._row_s + _SMOOTHING * (cost - self._row_s)
        )

    def rows(self, queued: int, slots: int) -> int:
        """Rows of the next chunk, when so many are waiting for so many children."""
        if self._row_s is None:
            rows, least = _FIRST_CHUNK, 1
        else:
            rows = max(1, min(MAX_CHUNK, int(_CHUNK_S / self._row_s)))
            least = int(_LEAST_CHUNK_S / self._row_s)
        # Smaller towards the end, so that the children end together, but never so small that the
        # turn-around costs more than that.
        return min(rows, max(least, math.ceil(queued / (2 * slots))))
