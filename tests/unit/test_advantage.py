# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rewards and the step that makes advantages of them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.advantage import mask_rows, pack, reward_step, unpack
from trainer.codec import RowRewards


def rewards_of(values: list[list[float]], totals: list[float]) -> RowRewards:
    """Rewards of rows; NaN where there is none."""
    return RowRewards(
        reward_fns=("a", "b"),
        rewards=np.array(values, np.float64),
        totals=np.array(totals, np.float64),
        valid=np.isfinite(totals),
        failures=[],
        extra_columns={},
        queue_s=0,
        total_s=0,
    )


def test_pack_hides_missing_values_behind_a_mask() -> None:
    """NaN does not reach the device; its place says so."""
    rewards = rewards_of([[1, 2], [np.nan, 3]], [3, np.nan])
    assert pack(rewards).tolist() == [
        [1, 2, 0, 0, 1, 1, 3, 0, 1, 1],
        [0, 3, 0, 0, 0, 1, 0, 0, 0, 0],
    ]
    # With a value the row counts, and is still known as failed.
    assert pack(rewards, failed_value=-1.0).tolist()[1] == [0, 3, 0, 0, 0, 1, -1, 0, 1, 0]


def test_packed_rewards_keep_what_float32_loses() -> None:
    """A float64 is the sum of two float32 to 48 bits, and comes back as it was."""
    values = 1e6 + np.random.default_rng(0).random((8, 2))
    totals = values @ [1.0, 0.5]
    scores = unpack(pack(rewards_of(values, totals)), (1.0, 0.5))
    np.testing.assert_allclose(scores.values, values, rtol=1e-14)
    np.testing.assert_allclose(scores.totals, totals, rtol=1e-14)


@pytest.mark.parametrize("estimator", ["grpo", "gdpo"])
def test_micro_batches_are_one_batch_for_the_estimator(estimator: str) -> None:
    """Cut in micro-batches, the rows that were scored together get the same advantages."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("fsdp",))
    whole = NamedSharding(mesh, PartitionSpec())
    step = reward_step(whole, whole, 2, estimator, (1.0, 0.5))
    values = np.random.default_rng(0).normal(size=(8, 2))
    packed = pack(rewards_of(values, values @ [1.0, 0.5]))[None]
    (together,) = step(packed)["advantages"]
    apart = step(packed[:, :2], packed[:, 2:])["advantages"]
    assert [len(part) for part in apart] == [2, 6]
    np.testing.assert_allclose(np.concatenate(apart), together, rtol=1e-5)


def test_masks_of_rows_that_do_not_count_are_empty() -> None:
    """The others keep theirs."""
    mask = np.array([[True, True], [True, False]])
    got = mask_rows(mask, np.array([False, True]))
    assert got.tolist() == [[False, False], [True, False]]
