# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose rows come next, and how many of them."""

from __future__ import annotations

import dataclasses
import types

import pytest

from reward_server.pieces import MAX_PIECE_ROWS, PieceSize
from reward_server.turns import Turns


@dataclasses.dataclass(eq=False)
class Waiting:
    """A call in a queue."""

    batch: types.SimpleNamespace
    queued: int


def call(caller, rows):
    """A call with so many rows waiting."""
    return Waiting(types.SimpleNamespace(caller=caller), rows)


def order(turns):
    """Callers in the order of their turns, a row at a time."""
    out = ""
    while (taken := turns.take()) is not None:
        taken.queued -= 1
        out += taken.batch.caller
    return out


def test_callers_take_turns():
    """However many rows or calls one has; a call that is exhausted leaves."""
    turns = Turns()
    for waiting in (call("a", 3), call("a", 2), call("b", 2), call("c", 1)):
        turns.append(waiting)
    assert turns.queued == 8
    assert order(turns) == "abcabaaa"
    assert not turns


def test_calls_of_a_caller_keep_their_order():
    """First come, first served; what comes back comes first; nothing is queued twice."""
    turns = Turns()
    first, second = call("a", 1), call("a", 1)
    turns.append(second)
    turns.appendleft(first)
    turns.append(first)
    assert list(turns) == [first, second]
    assert turns.take() is first


def test_a_caller_that_comes_back_waits_its_turn():
    """One that always has a single row gets no more than the others."""
    turns = Turns()
    turns.append(call("a", 3))
    turns.append(call("b", 3))
    got = ""
    for _ in range(6):
        taken = turns.take()
        taken.queued -= 1
        got += taken.batch.caller
        if taken.batch.caller == "a" and not taken.queued:
            turns.append(call("a", 1))
    assert got == "ababab"


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
