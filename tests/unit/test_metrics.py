# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of a step: those of all its rows, however it was cut, by plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer.advantage import HostScores
from trainer.metrics import (
    Metrics,
    group_metrics,
    length_metrics,
    reward_metrics,
    spread_metrics,
)

NAMES = ("a", "b")
WEIGHTS = np.array([1.0, -0.5])


def some_scores(failing: float) -> HostScores:
    """Rewards of 24 rows with a large offset, of which some have none, and some values lack."""
    dice = np.random.default_rng(3)
    values = 1e6 + dice.random((24, 2))
    has = dice.random((24, 2)) > failing
    has[:8] &= failing == 0  # in a first call no row has a reward
    has[8:, 0] |= ~has[8:].any(axis=1) & (failing < 1)
    scored = has.any(axis=1)
    values = np.where(has, values, 0.0)
    return HostScores(values, has, values @ WEIGHTS, scored.copy(), scored, WEIGHTS)


def joined(calls: list[Metrics]) -> dict[str, Any]:
    """Values that Tunix logs: the calls' values as one array, joined by the metric's function."""
    return {
        name: join(np.array([call[name][0] for call in calls]))
        for name, (_, join) in calls[0].items()
    }


def cut(scores: HostScores, sizes: list[int]) -> list[HostScores]:
    """Sampling calls of so many rows."""
    stops = np.cumsum(sizes)
    return [
        HostScores(*(x[stop - size : stop] for x in scores[:5]), scores.weights)
        for size, stop in zip(sizes, stops, strict=True)
    ]


def plain(scores: HostScores) -> dict[str, Any]:
    """The same by numpy over the rows that have a value."""
    rows, nan = scores.scored, float("nan")
    totals = scores.totals[scores.counts]
    weighted = np.where(scores.has, scores.values * WEIGHTS, np.nan)[rows]
    some = len(totals) > 0
    want = {
        "rewards/score/mean": totals.mean() if some else nan,
        "rewards/score/max": totals.max() if some else nan,
        "rewards/score/min": totals.min() if some else nan,
        "rewards/sum": np.nansum(weighted, axis=1).mean() if some else nan,
        "rewards/mean": np.nanmean(weighted, axis=1).mean() if some else nan,
        "rewards/max": np.nanmax(weighted) if some else nan,
        "rewards/min": np.nanmin(weighted) if some else nan,
        "rewards/rows_failed": (~rows).sum(),
    }
    for i, name in enumerate(NAMES):
        values = scores.values[scores.has[:, i], i]
        mean = values.mean() if len(values) else nan
        want |= {
            f"rewards/{name}": mean,
            f"rewards/{name}/mean": mean,
            f"rewards/{name}/std": values.std() if len(values) else nan,
            f"rewards/{name}/n_valid": len(values),
        }
    return want


@pytest.mark.parametrize("failing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("sizes", [[24], [8, 8, 8], [8, 16], [12, 8, 4], [4] * 6])
def test_metrics_are_those_of_the_rows_of_the_step(sizes: list[int], failing: float) -> None:
    """Means, deviations and counts don't depend on the sampling calls, nor on failed ones."""
    scores = some_scores(failing)
    got = joined([reward_metrics(call, NAMES) for call in cut(scores, sizes)])
    want = plain(scores)
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("sizes", [[24], [8, 16], [12, 8, 4]])
def test_lengths_and_groups_are_those_of_the_step(sizes: list[int]) -> None:
    """A call with few rows counts for few."""
    dice = np.random.default_rng(5)
    lengths, advantages = dice.integers(1, 9, 24), dice.normal(size=24)
    advantages[4:12] = advantages[20:] = 0
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = [
        (lengths[stop - size : stop], advantages[stop - size : stop])
        for size, stop in zip(sizes, np.cumsum(sizes), strict=True)
    ]
    got = joined([length_metrics("c", mine) | group_metrics(other, 4) for mine, other in parts])
    assert got == pytest.approx(
        {
            "c/mean_length": lengths.mean(),
            "c/max_length": lengths.max(),
            "c/min_length": lengths.min(),
            "rewards/groups_without_signal": 0.5,
        }
    )


def test_what_the_device_measured_is_joined() -> None:
    """Of tokens: means by their number, extremes by extremes, a call without any left out."""
    calls = [
        {"x": {"n": 3, "sum": 6.0, "max": 4.0, "min": 1.0}, "kl": {"n": 2, "sum": 4.0}},
        {"x": {"n": 0, "sum": 0.0, "max": -np.inf, "min": np.inf}, "kl": {"n": 0, "sum": 0.0}},
        {"x": {"n": 1, "sum": 10.0, "max": 10.0, "min": 10.0}, "kl": {"n": 1, "sum": 5.0}},
    ]
    got = joined([spread_metrics(call) for call in calls])
    assert got == {"x/mean": 4.0, "x/max": 10.0, "x/min": 1.0, "kl": 3.0}
