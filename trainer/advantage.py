# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards to group-relative advantages, on the device, over all processes.

Legend: B global rows, F reward functions, G rows of a group, R replicas.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jax.sharding import NamedSharding

    from trainer.codec import RowRewards

EPSILON = 1e-6


def group_advantage(
    rewards: Float[Array, " B"], valid: Bool[Array, " B"], num_generations: int
) -> Float[Array, " B"]:
    """Computes A = v (r - mean) / (std + 1e-6) over the valid rows of each group.

    The formula is that of GRPO (https://arxiv.org/abs/2402.03300) as Tunix has it, the standard
    deviation with ddof=1; with all rows valid the two agree to float32. A group with fewer than
    two valid rows gets 0, and so does every row that is not valid.

    Args:
        rewards: total rewards; values of rows that are not valid are ignored.
        valid: which rows have a reward.
        num_generations: G; groups are G adjacent rows.

    Example:
        >>> group_advantage(jnp.array([0.0, 1.0]), jnp.array([True, True]), 2).round(3)
        Array([-0.707,  0.707], dtype=float32)
    """
    r = jnp.where(valid, rewards, 0.0).reshape(-1, num_generations)
    v = valid.reshape(-1, num_generations).astype(r.dtype)
    count = v.sum(axis=1, keepdims=True)
    mean = r.sum(axis=1, keepdims=True) / jnp.maximum(count, 1)
    deviation = v * (r - mean)
    variance = (deviation**2).sum(axis=1, keepdims=True) / jnp.maximum(count - 1, 1)
    advantage = jnp.where(count >= 2, deviation / (jnp.sqrt(variance) + EPSILON), 0.0)
    return advantage.reshape(-1)


def packed_columns(functions: int) -> int:
    """Columns of packed rewards: 2 F + 3."""
    return 2 * functions + 3


def pack(rewards: RowRewards, *, failed_value: float | None = None) -> NDArray[np.float32]:
    """Packs rewards of rows for the device: float32 [b, 2 F + 3].

    Columns: F values, F whether there is a value, the total, whether the row counts, whether it
    was scored. Missing values are 0 with a 0 beside them: NaN would not survive the masked sums.

    Args:
        rewards: of b rows.
        failed_value: total of rows without one, which then count; None leaves them out.
    """
    has = np.isfinite(rewards.rewards)
    counts = rewards.valid if failed_value is None else np.ones_like(rewards.valid)
    totals = np.where(rewards.valid, rewards.totals, failed_value or 0.0)
    columns = [totals, counts, rewards.valid]
    return np.concatenate(
        [np.where(has, rewards.rewards, 0.0), has, np.stack(columns, axis=1)], axis=1
    ).astype(np.float32)


def pack_arrays(
    rewards: Float[Array, "B F"],
    totals: Float[Array, " B"],
    valid: Bool[Array, " B"],
    failed_value: float | None,
) -> Float[Array, "B C"]:
    """Packs rewards that are on the device already, as `pack` does."""
    has = jnp.isfinite(rewards)
    counts = valid if failed_value is None else jnp.ones_like(valid)
    columns = [jnp.where(valid, totals, failed_value or 0.0), counts, valid]
    parts = [jnp.where(has, rewards, 0.0), has, jnp.stack(columns, axis=1)]
    return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)


@functools.cache
def reward_step(
    row_sharding: NamedSharding, replicated: NamedSharding, num_generations: int
) -> jax.stages.Wrapped:
    """Makes the compiled step from packed rewards [R, B, 2 F + 3] to advantages and means.

    What crosses processes in it is the packed rewards, nothing with a token dimension.

    Returns:
        A function to (rewards [B, F], totals [B], valid [B], advantages [B], metrics): rows
        sharded like the tokens, metrics replicated scalars and [F] vectors.
    """

    def step(packed: Float[Array, "R B C"]) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
        # Whole on every device: [B] floats, and the sums then have one order on any mesh.
        whole = jax.lax.with_sharding_constraint(packed.sum(axis=0), replicated)
        f = (whole.shape[1] - packed_columns(0)) // 2
        values, has = whole[:, :f], whole[:, f : 2 * f] > 0
        totals, valid, scored = whole[:, -3], whole[:, -2] > 0, whole[:, -1] > 0
        advantages = group_advantage(totals, valid, num_generations)
        n_fn, n = has.sum(axis=0), valid.sum()
        mean_fn = values.sum(axis=0) / jnp.maximum(n_fn, 1)
        var_fn = (has * (values - mean_fn) ** 2).sum(axis=0) / jnp.maximum(n_fn, 1)
        spread = jnp.abs(advantages).reshape(-1, num_generations).max(axis=1)
        metrics = {
            "mean": totals.sum() / jnp.maximum(n, 1),
            "max": jnp.where(valid, totals, -jnp.inf).max(),
            "min": jnp.where(valid, totals, jnp.inf).min(),
            "n_failed": (~scored).sum(),
            "fn_mean": mean_fn,
            "fn_std": jnp.sqrt(var_fn),
            "fn_n_valid": n_fn,
            "groups_without_signal": (spread == 0).mean(),
        }
        return values, totals, valid, advantages, metrics

    rows = row_sharding
    return jax.jit(step, out_shardings=(rows, rows, rows, rows, replicated))
