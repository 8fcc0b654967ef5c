# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards to advantages, on the device, over all processes.

Legend: B global rows, F reward functions, G rows of a group, R replicas.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

from trainer.estimators import ESTIMATORS, Scores

if TYPE_CHECKING:
    from jax.sharding import NamedSharding

    from trainer.codec import RowRewards


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
    row_sharding: NamedSharding,
    replicated: NamedSharding,
    num_generations: int,
    estimator: str | None = "grpo",
    weights: tuple[float, ...] | None = None,
) -> jax.stages.Wrapped:
    """Makes the compiled step from packed rewards [R, B, 2 F + 3] to advantages and means.

    What crosses processes in it is the packed rewards, nothing with a token dimension.

    Args:
        row_sharding: of rows.
        replicated: sharding of what every device holds whole.
        num_generations: G.
        estimator: name among `trainer.estimators.ESTIMATORS`; None computes no advantages.
        weights: of the F functions, for metrics and estimators; None for 1.

    Returns:
        A function of the packed rewards of one micro-batch or more, which make one batch for the
        estimator. It gives a dict of lists with one item a micro-batch: "totals", "valid" and
        "advantages", [B] sharded like the tokens, and "metrics", replicated scalars and [F].
    """

    def step(*packed: Float[Array, "R B C"]) -> dict[str, list[Any]]:
        # Whole on every device: [B] floats, and the sums then have one order on any mesh.
        wholes = [jax.lax.with_sharding_constraint(p.sum(axis=0), replicated) for p in packed]
        f = (wholes[0].shape[1] - packed_columns(0)) // 2
        factors = jnp.ones(f) if weights is None else jnp.array(weights, jnp.float32)
        parts = [_scores(whole, factors) for whole in wholes]
        metrics = [
            _metrics(scores, whole[:, -1] > 0) for scores, whole in zip(parts, wholes, strict=True)
        ]
        out: dict[str, list[Any]] = {
            "totals": [scores.totals for scores in parts],
            "valid": [scores.valid for scores in parts],
            "metrics": metrics,
        }
        if estimator is not None:
            all_scores = _scores(jnp.concatenate(wholes), factors)
            advantages = ESTIMATORS[estimator](all_scores, num_generations)
            sizes = [len(whole) for whole in wholes]
            out["advantages"] = jnp.split(advantages, np.cumsum(sizes)[:-1].tolist())
            for mine, values in zip(metrics, out["advantages"], strict=True):
                spread = jnp.abs(values).reshape(-1, num_generations).max(axis=1)
                mine["groups_without_signal"] = (spread == 0).mean()
        return out

    names = ["totals", "valid", *(["advantages"] if estimator is not None else [])]
    return jax.jit(
        step, out_shardings={**dict.fromkeys(names, row_sharding), "metrics": replicated}
    )


def _scores(whole: Float[Array, "B C"], weights: Float[Array, " F"]) -> Scores:
    f = len(weights)
    return Scores(
        values=whole[:, :f],
        has=whole[:, f : 2 * f] > 0,
        totals=whole[:, -3],
        valid=whole[:, -2] > 0,
        weights=weights,
    )


def _metrics(scores: Scores, scored: Bool[Array, " B"]) -> dict[str, Array]:
    values, has, totals, valid, weights = scores
    n_fn, n = has.sum(axis=0), valid.sum()
    mean_fn = values.sum(axis=0) / jnp.maximum(n_fn, 1)
    var_fn = (has * (values - mean_fn) ** 2).sum(axis=0) / jnp.maximum(n_fn, 1)

    def over_rows(of_row: Float[Array, " B"]) -> Array:
        return jnp.where(scored, of_row, 0.0).sum() / jnp.maximum(scored.sum(), 1)

    weighted, counts = values * weights, has & (weights != 0)
    sums, scored_values = weighted.sum(axis=1), counts & scored[:, None]
    return {
        "mean": jnp.where(valid, totals, 0.0).sum() / jnp.maximum(n, 1),
        "max": jnp.where(valid, totals, -jnp.inf).max(),
        "min": jnp.where(valid, totals, jnp.inf).min(),
        "n_failed": (~scored).sum(),
        "row_sum": over_rows(sums),
        "row_mean": over_rows(sums / jnp.maximum(counts.sum(axis=1), 1)),
        "value_max": jnp.where(scored_values, weighted, -jnp.inf).max(),
        "value_min": jnp.where(scored_values, weighted, jnp.inf).min(),
        "fn_mean": mean_fn,
        "fn_std": jnp.sqrt(var_fn),
        "fn_n_valid": n_fn,
    }
