# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards to advantages, on the device, over all processes.

Legend: B global rows, F reward functions, G rows of a group, R replicas.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

from trainer.estimators import ESTIMATORS, Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import NamedSharding

    from trainer.codec import RowRewards


def packed_columns(functions: int) -> int:
    """Columns of packed rewards: 3 F + 4."""
    return 3 * functions + 4


def pack(rewards: RowRewards, *, failed_value: float | None = None) -> NDArray[np.float32]:
    """Packs rewards of rows for the device: float32 [b, 3 F + 4].

    A float64 travels as two float32 whose sum it is to 48 bits: what is left of a large offset
    when the mean of a group is taken would be lost in one. Columns: F values, what each lacks, F
    whether there is a value, the total, what it lacks, whether the row counts, whether it was
    scored. Missing values are 0 with a 0 beside them: NaN would not survive the masked sums.

    Args:
        rewards: of b rows.
        failed_value: total of rows without one, which then count; None leaves them out.
    """
    return pack_columns(rewards.rewards, rewards.totals, rewards.valid, failed_value=failed_value)


def pack_columns(
    rewards: NDArray[np.floating],
    totals: NDArray[np.floating],
    valid: NDArray[np.bool_],
    *,
    failed_value: float | None,
) -> NDArray[np.float32]:
    """Packs rewards [b, F], totals [b] and whether a row has one, [b], as `pack` does."""
    has = np.isfinite(rewards)
    counts = valid if failed_value is None else np.ones_like(valid)
    values = _split(np.where(has, rewards, 0.0))
    of_row = [*_split(np.where(valid, totals, failed_value or 0.0)), counts, valid]
    columns = [*values, has, np.stack([c.astype(np.float32) for c in of_row], axis=1)]
    return np.concatenate([part.astype(np.float32) for part in columns], axis=1)


def _split(x: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    high = x.astype(np.float32)
    return high, (x.astype(np.float64) - high).astype(np.float32)


def unpack(packed: NDArray[np.float32], weights: Sequence[float]) -> HostScores:
    """Reads packed rewards [B, 3 F + 4] on the host.

    Args:
        packed: whole rows, as `pack` makes them.
        weights: of the F functions.
    """
    f = len(weights)
    wide = packed.astype(np.float64)
    return HostScores(
        values=wide[:, :f] + wide[:, f : 2 * f],
        has=packed[:, 2 * f : 3 * f] > 0,
        totals=wide[:, -4] + wide[:, -3],
        counts=packed[:, -2] > 0,
        scored=packed[:, -1] > 0,
        weights=np.asarray(weights, np.float64),
    )


class HostScores(NamedTuple):
    """Rewards of all rows that were scored at once, on the host.

    Attributes:
        values: float64 [B, F], 0 where a function gave none.
        has: bool [B, F], whether there is a value.
        totals: float64 [B]; anything where the row does not count.
        counts: bool [B], whether the row is part of the batch.
        scored: bool [B], whether it has a reward; one that failed counts with `value=X`.
        weights: float64 [F], of the functions.
    """

    values: NDArray[np.float64]
    has: NDArray[np.bool_]
    totals: NDArray[np.float64]
    counts: NDArray[np.bool_]
    scored: NDArray[np.bool_]
    weights: NDArray[np.float64]


@functools.cache
def reward_step(
    row_sharding: NamedSharding,
    replicated: NamedSharding,
    num_generations: int,
    estimator: str | None = "grpo",
    weights: tuple[float, ...] | None = None,
) -> jax.stages.Wrapped:
    """Makes the compiled step from packed rewards [R, B, 3 F + 4] to advantages.

    What crosses processes in it is the packed rewards, nothing with a token dimension.

    Args:
        row_sharding: of rows.
        replicated: sharding of what every device holds whole.
        num_generations: G.
        estimator: name among `trainer.estimators.ESTIMATORS`; None computes no advantages.
        weights: of the F functions, for estimators; None for 1.

    Returns:
        A function of the packed rewards of one micro-batch or more, which make one batch for the
        estimator. It gives a dict of lists with one item a micro-batch: "totals", "valid" and
        "advantages", [B] sharded like the tokens; and, whole on every device, "packed", the rows
        of all micro-batches, and "all_advantages".
    """

    def step(*packed: Float[Array, "R B C"]) -> dict[str, Any]:
        # Whole on every device: [B] floats, and the sums then have one order on any mesh.
        wholes = [jax.lax.with_sharding_constraint(p.sum(axis=0), replicated) for p in packed]
        f = (wholes[0].shape[1] - packed_columns(0)) // 3
        factors = jnp.ones(f) if weights is None else jnp.array(weights, jnp.float32)
        parts = [_scores(whole, factors) for whole in wholes]
        out: dict[str, Any] = {
            "totals": [scores.totals for scores in parts],
            "valid": [scores.valid for scores in parts],
            "packed": jnp.concatenate(wholes),
        }
        if estimator is not None:
            all_scores = _scores(out["packed"], factors)
            advantages = ESTIMATORS[estimator](all_scores, num_generations)
            sizes = [len(whole) for whole in wholes]
            out["advantages"] = jnp.split(advantages, np.cumsum(sizes)[:-1].tolist())
            out["all_advantages"] = advantages
        return out

    shardings = {"totals": row_sharding, "valid": row_sharding, "packed": replicated}
    if estimator is not None:
        shardings |= {"advantages": row_sharding, "all_advantages": replicated}
    return jax.jit(step, out_shardings=shardings)


def _scores(whole: Float[Array, "B C"], weights: Float[Array, " F"]) -> Scores:
    f = len(weights)
    return Scores(
        values=whole[:, :f],
        values_rest=whole[:, f : 2 * f],
        has=whole[:, 2 * f : 3 * f] > 0,
        totals=whole[:, -4],
        totals_rest=whole[:, -3],
        valid=whole[:, -2] > 0,
        weights=weights,
    )


def mask_rows(completion_mask: Bool[Array, "B T"], valid: Bool[Array, " B"]) -> Bool[Array, "B T"]:
    """Empties the masks of rows that don't count: they leave every mean of a loss."""
    return completion_mask & valid[:, None]
