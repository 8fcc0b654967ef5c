# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rewards and the step that makes advantages of them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.advantage import pack, reward_step
from trainer.codec import RowRewards


def rewards_of(values: list[list[float]], totals: list[float]) -> RowRewards:
    """Rewards of rows; NaN where there is none."""
    return RowRewards(
        reward_fns=("a", "b"),
        rewards=np.array(values, np.float32),
        totals=np.array(totals, np.float32),
        valid=np.isfinite(totals),
        failures=[],
        extra_columns={},
        queue_s=0,
        total_s=0,
    )


def test_pack_hides_missing_values_behind_a_mask() -> None:
    """NaN does not reach the device; its place says so."""
    rewards = rewards_of([[1, 2], [np.nan, 3]], [3, np.nan])
    assert pack(rewards).tolist() == [[1, 2, 1, 1, 3, 1, 1], [0, 3, 0, 1, 0, 0, 0]]
    # With a value the row counts, and is still known as failed.
    assert pack(rewards, failed_value=-1.0).tolist()[1] == [0, 3, 0, 1, -1, 1, 0]


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


def test_metrics_of_a_step() -> None:
    """Means are over the rows that have a reward, those of a function over its values."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("fsdp",))
    whole = NamedSharding(mesh, PartitionSpec())
    nan = np.nan
    rewards = rewards_of([[1, 3], [2, nan], [nan, 9], [4, 4]], [7, 2, nan, 12])
    step = reward_step(whole, whole, 2, weights=(1.0, 2.0))
    (metrics,) = step(pack(rewards)[None])["metrics"]
    want = {
        "mean": 21 / 3,
        "max": 12,
        "min": 2,
        "n_failed": 1,
        "row_sum": 21 / 3,
        "row_mean": (3.5 + 2 + 6) / 3,
        "value_max": 8,
        "value_min": 1,
        "groups_without_signal": 0.5,
    }
    for name, value in want.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(metrics["fn_mean"], [7 / 3, 16 / 3], rtol=1e-6)
    assert metrics["fn_n_valid"].tolist() == [3, 3]
