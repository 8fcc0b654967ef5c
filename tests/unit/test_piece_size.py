# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows a worker gets at a time."""

from __future__ import annotations

import pytest

from reward_server.piece_size import MAX_PIECE_ROWS, PieceSize


@pytest.mark.parametrize(
    ("row_s", "queued", "free", "rows_per_slot", "expected"),
    [
        (None, 1000, 8, 1, 1),  # nobody knows yet
        (0.1, 1000, 8, 1, 1),  # dear rows one by one
        (0.005, 1000, 8, 1, 10),  # 50 ms
        (0.005, 64, 8, 1, 4),  # smaller towards the end
        (0.000_01, 10_000, 8, 1, MAX_PIECE_ROWS),
        (0.000_05, 64, 8, 1, 100),  # the way back and forth costs more than that
        (4.0, 512, 2, 256, 256),  # async rows side by side
        (4.0, 256, 1, 256, 256),  # as many as there are for the only free slot
        (4.0, 100, 2, 256, 50),
        (4.0, 1, 4, 256, 1),
    ],
)
def test_piece_size(row_s, queued, free, rows_per_slot, expected):
    """Long beside the way back and forth, short beside a step."""
    size = PieceSize()
    if row_s is not None:
        size.observe(10, 10 * row_s)
    assert size.rows(queued, slots=8, free=free, rows_per_slot=rows_per_slot) == expected


def test_the_cost_of_a_row_is_learned():
    """A large piece tells more than a row."""
    few, many = PieceSize(), PieceSize()
    for size, rows in ((few, 1), (many, 100)):
        size.observe(1, 1.0)
        size.observe(rows, rows * 0.1)
    assert many.row_s == pytest.approx(0.1, rel=0.01)
    assert few.row_s > 0.8
