# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the parameters that a rewards file gives to a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_server import registry
from reward_server.config import ConfigError, RewardFnConfig, RewardsConfig

FILE = Path(__file__).parents[1] / "data" / "reward_fns.py"


def scaled(**params):
    """The function of the helper file with these parameters."""
    return registry.load(RewardFnConfig(fn=f"{FILE}:scaled", params=params))


def call(function, columns):
    """Value of one row."""
    taken = function.select(columns)
    given = {"mode": "train", "step": 0}
    return function.value(function.call(**function.arguments(0, ["p"], ["abc"], taken, given)))


def test_parameters_are_the_same_for_every_row():
    """A parameter is no column any more, whatever the dataset holds under its name."""
    function = scaled(factor=2.0, offset=1.0)
    assert function.required_columns == ()
    assert call(function, {}) == 7.0


def test_without_parameters_they_are_columns():
    """What the rewards file does not set comes from the dataset."""
    function = scaled()
    assert function.required_columns == ("factor",)
    assert set(function.select({"factor": [3], "offset": [0.5]})) == {"factor", "offset"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"factr": 1}, "`factr` is none of its `params`; the nearest is `factor`"),
        ({"completions": []}, "`completions` is none of its `params`"),
    ],
)
def test_unknown_parameters_name_the_nearest(params, message):
    """A misspelt parameter is an error at the start."""
    with pytest.raises(TypeError, match=message):
        scaled(**params)


def test_function_without_parameters():
    """A function that takes only texts says so."""
    with pytest.raises(TypeError, match="it takes no `params`, got 'x'"):
        registry.load(RewardFnConfig(fn=f"{FILE}:length", params={"x": 1}))


def test_parameters_in_the_rewards_file(tmp_path):
    """`[reward.params]` belongs to the entry above it; values are plain."""
    file = tmp_path / "rewards.toml"
    file.write_text('[[reward]]\nfn = "a:b"\n[reward.params]\nx = 1\n[[reward]]\nfn = "a:c"\n')
    assert [f.params for f in RewardsConfig.load(file).functions] == [{"x": 1}, {}]
    file.write_text('[[reward]]\nfn = "a:b"\nparams = {day = 2026-01-01}\n')
    with pytest.raises(ConfigError, match="`params` must hold plain values"):
        RewardsConfig.load(file)
