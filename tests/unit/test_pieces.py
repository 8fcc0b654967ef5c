# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the pieces in which a call goes to workers."""

from __future__ import annotations

import numpy as np
import pytest

from reward_server.batch import Batch, Deadline
from reward_server.pieces import RoutedCall


def call(group_ids):
    """A call of seven rows."""
    batch = Batch(
        completion_ids=np.zeros(7, np.int32),
        completion_lengths=np.ones(7, np.int64),
        prompts=["p"] * 7,
        columns={},
        row_ids=list(range(7)),
        group_ids=None if group_ids is None else np.array(group_ids, np.int64),
    )
    return RoutedCall(batch, "id", reward_fns=(), reward_fns_digest="", deadline=Deadline(1.0))


@pytest.mark.parametrize(
    ("group_ids", "rows", "pieces"),
    [
        (None, 3, [(0, 3), (3, 6), (6, 7)]),
        ([1, 1, 1, 1, 2, 2, 2], 1, [(0, 4), (4, 7)]),
        ([1, 1, 1, 1, 2, 2, 2], 5, [(0, 7)]),
        ([1, 2, 2, 3, 3, 3, 4], 2, [(0, 3), (3, 6), (6, 7)]),
    ],
)
def test_pieces_end_with_whole_groups(group_ids, rows, pieces):
    """A piece has so many rows, and the rest of its last group where groups matter."""
    taken, one = [], call(group_ids)
    while one.queued:
        taken.append(one.take(rows))
    assert taken == pieces
