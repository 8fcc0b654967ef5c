# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What is measured of the rows that were sampled at once, and how a step's calls are joined.

A step may sample more than once, and rows may have no reward: a mean of the calls' means is then
not the mean of the rows. So a mean is buffered with the number of its rows, and joined by it.

Legend: B global rows, F reward functions, K sampling calls of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.advantage import HostScores

Join = Callable[[NDArray[Any]], Any]
Metrics = dict[str, tuple[Any, Join]]


def moments(x: NDArray[Any]) -> NDArray[np.float64]:
    """Number of values, their mean, and the sum of their squared distances to it: float64 [3]."""
    n = x.size
    mean = x.mean(dtype=np.float64) if n else 0.0
    return np.array([n, mean, ((x - mean) ** 2).sum(dtype=np.float64)])


def join_mean(calls: NDArray[np.float64]) -> float:
    """Mean of all values of moments [K, 3]; NaN without any.

    Example:
        >>> join_mean(np.array([moments(np.array([1.0, 3.0])), moments(np.array([]))]))
        2.0
    """
    n = calls[:, 0].sum()
    return float((calls[:, 0] * calls[:, 1]).sum() / n) if n else float("nan")


def join_std(calls: NDArray[np.float64]) -> float:
    """Standard deviation (ddof=0) of all values of moments [K, 3]; NaN without any."""
    n = calls[:, 0].sum()
    apart = calls[:, 0] * (calls[:, 1] - join_mean(calls)) ** 2
    return float(np.sqrt((calls[:, 2] + apart).sum() / n)) if n else float("nan")


def join_max(calls: NDArray[Any]) -> float:
    """Largest of the calls' [K]; NaN where none has a value."""
    return float(np.fmax.reduce(calls))


def join_min(calls: NDArray[Any]) -> float:
    """Smallest of the calls' [K]; NaN where none has a value."""
    return float(np.fmin.reduce(calls))


def largest(x: NDArray[Any]) -> float:
    """Maximum, or NaN of nothing."""
    return float(x.max()) if x.size else float("nan")


def smallest(x: NDArray[Any]) -> float:
    """Minimum, or NaN of nothing."""
    return float(x.min()) if x.size else float("nan")


def _spread(name: str, x: NDArray[Any]) -> Metrics:
    return {
        f"{name}/mean": (moments(x), join_mean),
        f"{name}/max": (largest(x), join_max),
        f"{name}/min": (smallest(x), join_min),
    }


def reward_metrics(scores: HostScores, names: Sequence[str]) -> Metrics:
    """Makes Tunix's metrics of rewards, and some of our own.

    Args:
        scores: of a sampling call.
        names: the F reward functions.
    """
    values, has, totals, counts, scored, weights = scores
    weighted, counted = values * weights, has & (weights != 0) & scored[:, None]
    of_row = weighted[scored].sum(axis=1)
    per_value = of_row / np.maximum(counted[scored].sum(axis=1), 1)
    metrics: Metrics = {
        **_spread("rewards/score", totals[counts]),
        "rewards/sum": (moments(of_row), join_mean),
        "rewards/mean": (moments(per_value), join_mean),
        "rewards/max": (largest(weighted[counted]), join_max),
        "rewards/min": (smallest(weighted[counted]), join_min),
        "rewards/rows_failed": (int((~scored).sum()), np.sum),
    }
    for i, name in enumerate(names):
        of_function = moments(values[has[:, i], i])
        metrics |= {
            f"rewards/{name}": (of_function, join_mean),
            f"rewards/{name}/mean": (of_function, join_mean),
            f"rewards/{name}/std": (of_function, join_std),
            f"rewards/{name}/n_valid": (int(of_function[0]), np.sum),
        }
    return metrics


def length_metrics(prefix: str, lengths: NDArray[np.integer]) -> Metrics:
    """Makes Tunix's metrics of the number of tokens of completions.

    Args:
        prefix: what the names begin with.
        lengths: of all rows, [B].
    """
    spread = _spread(prefix, lengths)
    return {f"{name}_length": value for name, value in spread.items()}


def group_metrics(advantages: NDArray[np.floating], num_generations: int) -> Metrics:
    """Makes the share of groups whose advantages are all 0.

    Args:
        advantages: of all rows, [B].
        num_generations: G; groups are G adjacent rows.
    """
    silent = (advantages.reshape(-1, num_generations) == 0).all(axis=1)
    return {"rewards/groups_without_signal": (moments(silent), join_mean)}


def spread_metrics(spreads: dict[str, dict[str, Any]]) -> Metrics:
    """Makes metrics of what `trainer.ppo.token_advantages` measures on the device."""
    metrics: Metrics = {}
    for name, spread in spreads.items():
        n = int(spread["n"])
        mean = np.array([n, float(spread["sum"]) / n if n else 0.0, 0.0])
        if "max" not in spread:
            metrics[name] = (mean, join_mean)
            continue
        nothing = float("nan")
        metrics |= {
            f"{name}/mean": (mean, join_mean),
            f"{name}/max": (float(spread["max"]) if n else nothing, join_max),
            f"{name}/min": (float(spread["min"]) if n else nothing, join_min),
        }
    return metrics
