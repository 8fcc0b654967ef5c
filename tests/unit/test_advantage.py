# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The masked group advantage, against Tunix's own estimator and by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tunix.rl import algo_core

from trainer.advantage import group_advantage, pack
from trainer.codec import RowRewards


@pytest.mark.parametrize("generations", [2, 4, 16])
def test_equals_tunix_with_all_rows_valid(generations: int) -> None:
    """With every row valid this is Tunix's `grpo` estimator to float32."""
    rewards = np.random.default_rng(0).normal(size=generations * 8)
    want = algo_core.compute_advantages(rewards, generations)
    got = group_advantage(jnp.array(rewards), jnp.ones(len(rewards), bool), generations)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_failed_rows_leave_the_group() -> None:
    """A failed row gets 0 and the others what they would get without it."""
    rewards, valid = jnp.array([1.0, 0.0, 99.0, 0.5]), jnp.array([True, True, False, True])
    got = group_advantage(rewards, valid, 4)
    want = algo_core.compute_advantages(np.array([1.0, 0.0, 0.5]), 3)
    np.testing.assert_allclose(np.delete(np.asarray(got), 2), want, rtol=1e-5)
    assert got[2] == 0


@pytest.mark.parametrize("valid", [[False, False], [True, False]])
def test_fewer_than_two_valid_rows_give_zero(valid: list[bool]) -> None:
    """A group without a comparison teaches nothing; NaN never comes out."""
    got = group_advantage(jnp.array([np.nan, 1.0]), jnp.array(valid), 2)
    assert np.asarray(got).tolist() == [0.0, 0.0]


def test_equal_rewards_give_zero() -> None:
    """A group without spread has advantage 0."""
    got = group_advantage(jnp.full(4, 0.7), jnp.ones(4, bool), 4)
    np.testing.assert_allclose(got, 0, atol=1e-3)


def test_pack_hides_missing_values_behind_a_mask() -> None:
    """NaN does not reach the device; its place says so."""
    rewards = RowRewards(
        reward_fns=("a", "b"),
        rewards=np.array([[1, 2], [np.nan, 3]], np.float32),
        totals=np.array([3, np.nan], np.float32),
        valid=np.array([True, False]),
        failures=[],
        extra_columns={},
        queue_s=0,
        total_s=0,
    )
    assert pack(rewards).tolist() == [[1, 2, 1, 1, 3, 1, 1], [0, 3, 0, 1, 0, 0, 0]]
    # With a value the row counts, and is still known as failed.
    assert pack(rewards, failed_value=-1.0).tolist()[1] == [0, 3, 0, 1, -1, 1, 0]
