# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the reward functions on cases that graders of this field got wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cases
from reward_server.reward_fns.errors import BadGold

ALL = [
    case
    for kind in ("math", "gsm8k", "format", "robustness", "decode")
    for case in cases.load(kind)
]
CLEAR = [case for case in ALL if not isinstance(case["expected"], str)]
BAD_GOLD = [case for case in ALL if case["expected"] == "invalid-gold"]
# What was chosen where two honest graders may differ.
CHOSEN = {
    1.0: "m034 m035 m109 m143 m162 m176 m191 m211 g044 g046 g055 g061 g064 g065",
    0.0: "m048 m049 m053 m108 m117 m119 m145 m159 m173 m183 m204 m208 g019 g020 g022 g054 g056"
    " f011 f017 r040 d006 d015 d019 d020 d031 d033",
}
CONVENTIONS = {case["id"]: case for case in ALL if case["expected"] == "convention"}


def rewards(case):
    """Rewards of a case's rows."""
    function = cases.built_in(cases.function_name(case))
    completions, golds, _ = zip(*cases.rows(case), strict=True)
    columns = {} if "format" in function.__name__ else {"answer": list(golds)}
    return function([""] * len(completions), list(completions), **columns)


@pytest.mark.parametrize("case", CLEAR, ids=[case["id"] for case in CLEAR])
def test_clear_case(case):
    """Cases that honest graders agree on."""
    assert rewards(case) == [expected for _, _, expected in cases.rows(case)]


@pytest.mark.parametrize("case", BAD_GOLD, ids=[case["id"] for case in BAD_GOLD])
def test_bad_gold_case(case):
    """References that cannot be graded against."""
    with pytest.raises(BadGold):
        rewards(case)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [(name, reward) for reward, names in CHOSEN.items() for name in names.split()],
)
def test_convention(name, chosen):
    """What was chosen where graders differ stays so."""
    assert rewards(CONVENTIONS[name]) == [chosen]


def test_every_convention_is_chosen():
    """No case is left open."""
    assert sorted(CONVENTIONS) == sorted(
        name for names in CHOSEN.values() for name in names.split()
    )


def test_documented_contracts():
    """The table in the documentation is the one that the command prints."""
    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
    assert cases.contracts() in text
