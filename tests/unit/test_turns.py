# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose rows come next."""

from __future__ import annotations

import dataclasses
import types

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


def test_a_call_that_ended_is_forgotten():
    """Its rows would stay in memory; what was never queued does no harm."""
    turns = Turns()
    first, second = call("a", 1), call("a", 1)
    turns.append(first)
    turns.discard(second)
    turns.append(second)
    turns.discard(first)
    assert list(turns) == [second]
    turns.discard(second)
    assert not turns


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
