# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The masked advantage estimators, against Tunix's own, the paper's formula, and by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tunix.rl import algo_core, function_registry
from tunix.rl.grpo.drgrpo_learner import DrGRPOConfig

from trainer.estimators import ESTIMATORS, Scores
from trainer.failures import FailurePolicy
from trainer.setup_checks import check_estimator

TUNIX = {
    "grpo": algo_core.compute_advantages,
    "rloo": algo_core.compute_rloo_advantages,
    "drgrpo": algo_core.compute_drgrpo_advantages,
}


def scores(values, valid=None, weights=None):
    """Scores of rows whose total is the weighted sum of values [B, F]; NaN is no value."""
    values = np.asarray(values, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    weights = np.ones(values.shape[1]) if weights is None else np.array(weights)
    has = np.isfinite(values)
    valid = has.any(axis=1) if valid is None else np.array(valid)
    filled = np.where(has, values, 0)
    totals = filled @ weights
    both = [x.astype(np.float32) for x in (filled, totals)]
    rest = [x - high for x, high in zip((filled, totals), both, strict=True)]
    parts = (both[0], rest[0], has, both[1], rest[1], valid, weights)
    return Scores(*map(jnp.asarray, parts))


@pytest.mark.parametrize("generations", [2, 4, 16])
@pytest.mark.parametrize("name", TUNIX)
def test_equals_tunix_with_all_rows_valid(name: str, generations: int) -> None:
    """With every row valid this is Tunix's estimator of that name to float32."""
    rewards = np.random.default_rng(0).normal(size=generations * 8)
    got = ESTIMATORS[name](scores(rewards), generations)
    np.testing.assert_allclose(got, TUNIX[name](rewards, generations), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("name", TUNIX)
def test_an_offset_costs_no_precision(name: str, offset: float) -> None:
    """Rewards far from 0 that differ little give what Tunix computes of them in float64."""
    rewards = offset + np.random.default_rng(4).random(64)
    got = ESTIMATORS[name](scores(rewards), 8)
    np.testing.assert_allclose(got, TUNIX[name](rewards, 8), atol=1e-6)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_an_offset_costs_gdpo_no_precision(offset: float) -> None:
    """Nor one that each function has of its own."""
    values = np.random.default_rng(4).random((64, 2)) + np.array([offset, -3 * offset])
    got = ESTIMATORS["gdpo"](scores(values, weights=[1.0, 0.5]), 8)
    np.testing.assert_allclose(got, gdpo(values, [1.0, 0.5], 8), atol=2e-6)


@pytest.mark.parametrize("name", TUNIX)
def test_failed_rows_leave_the_group(name: str) -> None:
    """A failed row gets 0 and the others what they would get without it."""
    got = ESTIMATORS[name](scores([1.0, 0.0, 99.0, 0.5], valid=[1, 1, 0, 1]), 4)
    want = TUNIX[name](np.array([1.0, 0.0, 0.5]), 3)
    np.testing.assert_allclose(np.delete(np.asarray(got), 2), want, rtol=1e-5, atol=1e-7)
    assert got[2] == 0


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("valid", [[False, False], [True, False]])
def test_fewer_than_two_valid_rows_give_zero(name: str, valid: list[bool]) -> None:
    """A group without a comparison teaches nothing; NaN never comes out."""
    got = ESTIMATORS[name](scores([[3.0, 1.0], [np.nan, 1.0]], valid=valid), 2)
    assert np.asarray(got).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("generations", [3, 4, 7])
def test_equal_rewards_give_zero(name: str, generations: int) -> None:
    """A group without spread has advantage 0, not the rounding of its mean over its own spread."""
    rewards = np.concatenate([np.full(generations, 100.3), np.arange(generations)])
    got = np.asarray(ESTIMATORS[name](scores(rewards), generations))
    assert not got[:generations].any()
    assert got[generations:].any()


def gdpo(values, weights, generations):
    """The formula of the paper in float64, by loops; NaN is no value."""
    total = np.zeros(len(values))
    for k, weight in enumerate(weights):
        for start in range(0, len(values), generations):
            rows = [i for i in range(start, start + generations) if np.isfinite(values[i, k])]
            if len(rows) >= 2:
                group = values[rows, k].astype(np.float64)
                total[rows] += weight * (group - group.mean()) / (group.std(ddof=1) + 1e-6)
    rows = np.isfinite(values).any(axis=1)
    out = np.zeros(len(values))
    out[rows] = (total[rows] - total[rows].mean()) / (total[rows].std(ddof=1) + 1e-6)
    return out


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 0.5, 0.0], [2.0, -1.0, 0.25]])
def test_gdpo_is_the_formula_of_the_paper(weights: list[float]) -> None:
    """Each function is normalised within its group, the weighted sum over the batch."""
    values = np.random.default_rng(1).normal(size=(24, 3)) * [1, 10, 100]
    got = ESTIMATORS["gdpo"](scores(values, weights=weights), 4)
    np.testing.assert_allclose(got, gdpo(values, weights, 4), rtol=1e-4, atol=1e-5)


def test_gdpo_takes_each_function_where_it_has_a_value() -> None:
    """A row counts for the functions that scored it, as with `sources`, and never as 0."""
    values = np.random.default_rng(2).normal(size=(24, 3))
    values[::5, 1] = values[:8, 2] = values[3] = np.nan
    got = ESTIMATORS["gdpo"](scores(values, weights=[1.0, 2.0, 1.0]), 4)
    np.testing.assert_allclose(got, gdpo(values, [1, 2, 1], 4), rtol=1e-4, atol=1e-5)
    assert got[3] == 0


def test_gdpo_tells_apart_what_grpo_does_not() -> None:
    """The paper's example: (0, 1) and (0, 2) are the same to GRPO, two functions agreeing more."""
    one, two = [[0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]]
    both = scores(one + two)
    grpo = np.asarray(ESTIMATORS["grpo"](both, 2))
    np.testing.assert_allclose(grpo[:2], grpo[2:], rtol=1e-5)
    advantages = np.asarray(ESTIMATORS["gdpo"](both, 2))
    np.testing.assert_allclose(2 * advantages[:2], advantages[2:], rtol=1e-4)


def test_unknown_estimators_are_refused_with_the_reason() -> None:
    """What Tunix's registry has from elsewhere knows no rows without a reward."""
    with pytest.raises(ValueError, match=r"must be one of grpo, rloo, drgrpo, gdpo, got 'gae'"):
        check_estimator("gae", FailurePolicy())
    check_estimator(DrGRPOConfig().advantage_estimator, FailurePolicy())


def test_an_estimator_registered_anew_is_refused() -> None:
    """A function that took the place of Tunix's own would silently not be called."""
    original = function_registry.get_advantage_estimator("rloo")
    register = function_registry.register_advantage_estimator("rloo")
    register(lambda rewards, num_generations: rewards)
    try:
        with pytest.raises(ValueError, match="'rloo' was registered anew"):
            check_estimator("rloo", FailurePolicy())
    finally:
        register(original)


def test_an_added_estimator_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator of one's own needs no other registration, and may have Tunix's too."""
    monkeypatch.setitem(ESTIMATORS, "mine", lambda scores, num_generations: scores.totals)
    check_estimator("mine", FailurePolicy())


def test_gdpo_wants_no_value_for_failed_rows() -> None:
    """A total for a failed row has no share for each function."""
    with pytest.raises(ValueError, match=r"`on_failed_row` must be mask or abort with 'gdpo'"):
        check_estimator("gdpo", FailurePolicy(on_failed_row="value=-1"))
