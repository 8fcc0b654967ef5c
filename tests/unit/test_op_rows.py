# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the reward operation on the host: found by id, bounded, never an exception."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer import RewardClient
from trainer.codec import LocalRollouts
from trainer.op_rows import MISSING, OpRows

UNSENDABLE = {1, 2}


def rows(*row_ids: int, answer: Any = "a") -> LocalRollouts:
    """Rows with these ids, without completions."""
    ids = np.array(row_ids, np.int64)
    return LocalRollouts(
        row_ids=ids,
        group_ids=ids,
        prompts=["p"] * len(ids),
        completion_ids=np.empty((len(ids), 0), np.int32),
        end_token_ids=[1],
        pad_token_id=0,
        columns={"answer": [answer] * len(ids)},
    )


def op_rows(max_rows: int = 100) -> OpRows:
    """Rows for a server that nobody started."""
    client = RewardClient("unix:/nowhere/reward.sock", timeout_s=0.2)
    return OpRows(client.submit, ["f", "g"], max_rows=max_rows)


def test_what_cannot_be_sent_is_a_status() -> None:
    """The error of a column goes to the rows put with it; others are sent."""
    host = op_rows()
    host.put(rows(1, 2, answer=UNSENDABLE))
    host.put(rows(2**32 + 7))
    ids = np.array([7, 2, 5, 1])
    host.start(ids, np.ones((4, 3), np.int32))
    rewards, totals, valid = host.finish(ids)
    assert rewards.shape == (4, 2)
    assert np.isnan(totals).all()
    assert not valid.any()
    taken, error = host.take([2**32 + 7, 2, 5, 1])
    assert taken is not None
    assert [(f.row_id, f.status) for f in taken.failures] == [
        (2**32 + 7, "UNAVAILABLE"),
        (2, "ERROR"),
        (5, MISSING),
        (1, "ERROR"),
    ]
    assert "got set in row 0" in taken.failures[1].message
    assert error is not None


def test_rows_put_again_are_new() -> None:
    """The outcome of an earlier program is not taken for that of a later one."""
    host = op_rows()
    for _ in range(2):
        host.put(rows(1, answer=UNSENDABLE))
        taken, error = host.take([1])
        assert taken is not None
        assert [f.status for f in taken.failures] == [MISSING]
        assert error is None
        host.put(rows(1, answer=UNSENDABLE))
        host.start(np.array([1]), np.ones((1, 3), np.int32))


def test_rows_that_nobody_takes_are_forgotten() -> None:
    """The oldest first; the host's memory has a bound."""
    host = op_rows(max_rows=2)
    host.put(rows(1, 2, 3, answer=UNSENDABLE))
    host.start(np.array([1, 2, 3]), np.ones((3, 3), np.int32))
    taken, _ = host.take([1, 2, 3])
    assert taken is not None
    assert [f.status for f in taken.failures] == [MISSING, "ERROR", "ERROR"]


def test_no_rows() -> None:
    """A process that owns no row has no rewards."""
    assert op_rows().take([]) == (None, None)
