# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Advantage estimators that leave out rows without a reward. Pure functions of whole arrays.

Where every row has a reward, `grpo`, `rloo` and `drgrpo` agree with Tunix's functions of these
names to float32. A row without a reward leaves the baseline of its group and gets 0; a group with
fewer than two rows that have one gets 0.

Legend: B global rows, F reward functions, G rows of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

EPSILON = 1e-6


class Scores(NamedTuple):
    """Rewards of all rows of a batch; groups are G adjacent rows.

    Attributes:
        values: float32 [B, F], 0 where a function gave none.
        values_rest: float32 [B, F], what `values` lacks of a float64.
        has: bool [B, F], whether there is a value.
        totals: float32 [B], weighted sums; anything where not valid.
        totals_rest: float32 [B], what `totals` lacks.
        valid: bool [B], whether the row counts.
        weights: float32 [F], of the functions.
    """

    values: Float[Array, "B F"]
    values_rest: Float[Array, "B F"]
    has: Bool[Array, "B F"]
    totals: Float[Array, " B"]
    totals_rest: Float[Array, " B"]
    valid: Bool[Array, " B"]
    weights: Float[Array, " F"]


def group_advantage(
    rewards: Float[Array, " B"],
    valid: Bool[Array, " B"],
    num_generations: int,
    rest: Float[Array, " B"] | float = 0.0,
) -> Float[Array, " B"]:
    """Computes A = v (r - mean) / (std + 1e-6) over the valid rows of each group.

    The formula is that of GRPO (https://arxiv.org/abs/2402.03300) as Tunix has it, the standard
    deviation with ddof=1.

    Args:
        rewards: total rewards; values of rows that are not valid are ignored.
        valid: which rows have a reward.
        num_generations: G; groups are G adjacent rows.
        rest: what the float32 rewards lack of float64.

    Example:
        >>> group_advantage(jnp.array([0.0, 1.0]), jnp.array([True, True]), 2).round(3)
        Array([-0.707,  0.707], dtype=float32)
    """
    deviation, count = _deviation(rewards, valid, num_generations, rest)
    variance = (deviation**2).sum(axis=1, keepdims=True) / jnp.maximum(count - 1, 1)
    return (deviation / (jnp.sqrt(variance) + EPSILON)).reshape(-1)


def grpo(scores: Scores, num_generations: int) -> Float[Array, " B"]:
    """Normalises totals by mean and standard deviation of their group."""
    return group_advantage(scores.totals, scores.valid, num_generations, scores.totals_rest)


def drgrpo(scores: Scores, num_generations: int) -> Float[Array, " B"]:
    """Centres totals on the mean of their group (https://arxiv.org/abs/2503.20783)."""
    deviation, _ = _deviation(scores.totals, scores.valid, num_generations, scores.totals_rest)
    return deviation.reshape(-1)


def rloo(scores: Scores, num_generations: int) -> Float[Array, " B"]:
    """Centres each total on the mean of the others of its group (https://arxiv.org/abs/2402.14740).

    That is the deviation from the mean of all n, times n / (n - 1).
    """
    deviation, count = _deviation(scores.totals, scores.valid, num_generations, scores.totals_rest)
    return (deviation * count / jnp.maximum(count - 1, 1)).reshape(-1)


def gdpo(scores: Scores, num_generations: int) -> Float[Array, " B"]:
    """Normalises each function within its group, adds them up by weight, normalises the batch.

    GDPO (https://arxiv.org/abs/2601.05242); its equations have no weights, the authors' code has
    them where they are here. A function's mean and standard deviation are over the rows of the
    group that have its value, those of the batch over the rows that have a reward. Both standard
    deviations have ddof=1 and get 1e-6 added, as in `grpo`. A group in which no function tells
    rows apart gets 0.
    """
    total = jnp.zeros_like(scores.totals)
    for k in range(scores.values.shape[1]):
        counted = scores.has[:, k] & scores.valid
        total += scores.weights[k] * group_advantage(
            scores.values[:, k], counted, num_generations, scores.values_rest[:, k]
        )
    n = scores.valid.sum()
    deviation = scores.valid * (total - total.sum() / jnp.maximum(n, 1))
    std = jnp.sqrt((deviation**2).sum() / jnp.maximum(n - 1, 1))
    signal = (total.reshape(-1, num_generations) != 0).any(axis=1).repeat(num_generations)
    return jnp.where(signal, deviation / (std + EPSILON), 0.0)


Estimator = Callable[[Scores, int], Float[Array, " B"]]
ESTIMATORS: dict[str, Estimator] = {"grpo": grpo, "rloo": rloo, "drgrpo": drgrpo, "gdpo": gdpo}


def _deviation(
    rewards: Float[Array, " B"],
    valid: Bool[Array, " B"],
    num_generations: int,
    rest: Float[Array, " B"] | float,
) -> tuple[Float[Array, "P G"], Float[Array, "P 1"]]:
    """Distance of each valid row to the mean of its group, else 0, and the valid rows' number."""
    v = valid.reshape(-1, num_generations)
    r = rewards.reshape(-1, num_generations)
    count = v.sum(axis=1, keepdims=True).astype(jnp.float32)
    # The difference of float32 of one size is exact: after it the rest of each is not lost.
    r = r - _lowest(r, v) + jnp.broadcast_to(rest, rewards.shape).reshape(r.shape)
    # From the smallest: equal rewards give exactly 0, not the rounding of their mean, which
    # divided by a standard deviation of rounding errors would be an advantage.
    r = jnp.where(v & (count >= 2), r - _lowest(r, v), 0.0)
    mean = r.sum(axis=1, keepdims=True) / jnp.maximum(count, 1)
    return jnp.where(v & (count >= 2), r - mean, 0.0), count


def _lowest(r: Float[Array, "P G"], valid: Bool[Array, "P G"]) -> Float[Array, "P 1"]:
    return jnp.where(valid, r, jnp.inf).min(axis=1, keepdims=True)
