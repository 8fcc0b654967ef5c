# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the rewards that depend on length and repetition."""

from __future__ import annotations

import pytest
from tunix.rl.grpo.dapo_learner import reward_shaping

from reward_server.reward_fns.cosine_length import cosine_length
from reward_server.reward_fns.length_penalty import length_penalty
from reward_server.reward_fns.overlong import overlong
from reward_server.reward_fns.repetition_penalty import repetition_penalty


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0.0), (10, 0.0), (60, -0.5), (110, -1.0), (999, -1.0)]
)
def test_length_penalty(tokens, expected):
    """Linear between the free length and the longest."""
    ids = [[7] * tokens]
    assert length_penalty([""], [""], ids, free_tokens=10, max_tokens=110) == [expected]


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (200, -1.0)]
)
def test_overlong(tokens, expected):
    """Nothing up to L_max - L_cache, then linear, then -1."""
    rewards = overlong([""], [""], [[7] * tokens], max_tokens=100, cache_tokens=20)
    assert rewards == pytest.approx([expected])


@pytest.mark.parametrize("length", [0, 80, 81, 90, 100, 137, 999])
@pytest.mark.parametrize("penalty", [0.0, 0.3, 1.0])
def test_overlong_as_tunix_has_it(length, penalty):
    """By characters and without a lowest value it is Tunix's `reward_shaping` for DAPO."""
    settings = {
        "overlong_buffer_length": 20,
        "overlong_buffer_penalty": penalty,
        "max_response_length": 100,
    }
    completions = ["\N{SNOWMAN}" * length]
    want = reward_shaping([""], completions, "train", overlong_buffer=settings)
    parameters = {"max_tokens": 100, "cache_tokens": 20, "unit": "characters", "clip": False}
    got = overlong([""], completions, [[7]], penalty=penalty, **parameters)
    assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 0.0),
        ([1], 0.0),
        ([1, 2, 3, 4], 0.0),
        ([1, 2, 1, 2, 1], -0.5),
        ([1] * 101, -0.99),
    ],
)
def test_repetition_penalty(ids, expected):
    """The share of n-grams that were there before."""
    assert repetition_penalty([""], [""], [ids], ngram_tokens=2) == pytest.approx([expected])
    assert repetition_penalty([""], [""], [ids], ngram_tokens=2, max_penalty=0.0) == [0.0]


@pytest.mark.parametrize(
    ("answer", "tokens", "expected"),
    [
        ("4", 0, 1.0),
        ("4", 50, 0.75),
        ("4", 25, 0.75 + 0.25 * 2**-0.5),
        ("5", 0, -1.0),
        ("5", 50, -0.75),
        ("4", 100, -1.0),
        ("5", 200, -1.0),
    ],
)
def test_cosine_length(answer, tokens, expected):
    """Falls with length for right answers, rises for wrong ones, and ends at the limit."""
    rewards = cosine_length([""], [rf"\boxed{{{answer}}}"], ["4"], [[7] * tokens], max_tokens=100)
    assert rewards == pytest.approx([expected])


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (length_penalty, {"free_tokens": 10, "max_tokens": 10}),
        (overlong, {"cache_tokens": 0}),
        (overlong, {"max_tokens": 10, "cache_tokens": 20}),
        (overlong, {"penalty": -1.0}),
        (overlong, {"unit": "words"}),
        (repetition_penalty, {"ngram_tokens": 0}),
    ],
)
def test_bad_parameters(function, parameters):
    """Parameters without a meaning are refused by name."""
    with pytest.raises(ValueError, match="` must be"):
        function([""], [""], [[1]], **parameters)
