# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows a worker gets at a time, from what rows have taken so far."""

from __future__ import annotations

import math

MAX_PIECE_ROWS = 256
# What a worker is asked to do at a time: long beside the way back and forth, short beside a step.
_PIECE_S = 0.05
_LEAST_PIECE_S = 0.005
_SMOOTHING = 0.1


class PieceSize:
    """Pieces of about 50 ms of a slot, of a row each where rows take longer than that.

    Rows may cost very different amounts. Several dear ones in a piece would wait for each other
    while other workers have nothing to do, so until a cost is known a piece is one row.
    """

    def __init__(self) -> None:
        self.row_s: float | None = None

    def observe(self, rows: int, slot_s: float) -> None:
        """Takes note of the seconds that a piece took of a worker's slots."""
        cost = slot_s / max(1, rows)
        if self.row_s is None:
            self.row_s = cost
        # A large piece tells more about the mean than a row does.
        share = 1 - (1 - _SMOOTHING) ** rows
        self.row_s += share * (cost - self.row_s)

    def rows(self, queued: int, *, slots: int, free: int, rows_per_slot: int) -> int:
        """Rows of the next piece.

        Args:
            queued: rows that are waiting.
            slots: of all workers.
            free: pieces that the workers can take now.
            rows_per_slot: rows that a slot works on side by side.
        """
        if rows_per_slot > 1:
            # Many wait no longer than few: what can be taken now shares all there are.
            return max(1, min(rows_per_slot, MAX_PIECE_ROWS, math.ceil(queued / max(1, free))))
        if self.row_s is None:
            return 1
        row_s = max(self.row_s, 1e-9)
        most = max(1, min(MAX_PIECE_ROWS, int(_PIECE_S / row_s)))
        # Smaller towards the end, so that workers end together, but never so small that the way
        # back and forth costs more than that.
        return min(most, max(int(_LEAST_PIECE_S / row_s), math.ceil(queued / (2 * max(1, slots)))))
