# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are sent in parts keep their rewards."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.codec import LocalRollouts, RowRewards
from trainer.submission import Submission, join_runs


def rollouts(*row_ids: int) -> LocalRollouts:
    """Rows with these ids."""
    ids = np.array(row_ids, np.int64)
    return LocalRollouts(
        row_ids=ids,
        group_ids=ids,
        prompts=[str(i) for i in row_ids],
        completion_ids=np.ones((len(ids), 2), np.int32),
        end_token_ids=[2],
        pad_token_id=0,
        columns={"answer": [f"a{i}" for i in row_ids]},
        completion_prefixes=["<think>"] * len(ids),
    )


class Handle:
    """What a client gives back: the row ids as totals."""

    def __init__(self, sent: LocalRollouts) -> None:
        self._totals = sent.row_ids.astype(np.float32)

    def result(self, timeout_s: float | None = None) -> RowRewards | None:
        """Rewards, None without rows, as of a process that owns none."""
        del timeout_s
        t = self._totals
        if not len(t):
            return None
        return RowRewards(
            reward_fns=("f",),
            rewards=t[:, None],
            totals=t,
            valid=np.isfinite(t),
            failures=[],
            extra_columns={},
            queue_s=0.0,
            total_s=0.0,
        )

    def retry(self, timeout_s: float) -> None:
        """Has its answer."""


@pytest.mark.parametrize(
    ("runs", "shards", "want"),
    [
        ([[0, 1, 2, 3]], 2, [0, 1, 2, 3]),
        ([[0, 1, 4, 5], [2, 6], [3, 7]], 2, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([[0], [1], [2]], 1, [0, 1, 2]),
        ([[], []], 0, []),
    ],
)
def test_join_runs(runs: list[list[int]], shards: int, want: list[int]) -> None:
    """Each shard's rows come together, in the order of the runs."""
    values = np.array([row for run in runs for row in run], np.float32).reshape(-1, 1)
    assert join_runs(values, [len(run) for run in runs], shards)[:, 0].tolist() == want


def test_rewards_come_in_the_order_of_sending() -> None:
    """Rows and rewards of all parts, one after the other; then shard by shard."""
    submission = Submission(Handle)
    submission.send(lambda: rollouts(0, 2))
    submission.send(lambda: rollouts(1, 3))
    rewards = submission.result()
    assert rewards is not None
    assert rewards.totals.tolist() == [0, 2, 1, 3]
    sent = submission.rollouts
    assert sent.row_ids.tolist() == [0, 2, 1, 3]
    assert list(sent.prompts) == ["0", "2", "1", "3"]
    assert sent.columns == {"answer": ["a0", "a2", "a1", "a3"]}
    assert sent.completion_prefixes == ["<think>"] * 4
    assert submission.in_held_order(rewards.rewards, 2)[:, 0].tolist() == [0, 1, 2, 3]


def test_error_waits_for_the_rewards() -> None:
    """The first error is what `result` raises; nothing is sent after it."""
    sent = []

    def broken() -> LocalRollouts:
        raise ValueError("a column can't be sent")

    submission = Submission(lambda rows: sent.append(rows) or Handle(rows))
    submission.send(broken)
    submission.send(lambda: rollouts(1))
    assert sent == []
    with pytest.raises(ValueError, match="a column"):
        submission.result()


def test_no_rows() -> None:
    """A process that owns no row has no rewards."""
    submission = Submission(Handle)
    submission.send(rollouts)
    assert submission.result() is None
