# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice of functions by a dataset column."""

from __future__ import annotations

import numpy as np
import pytest

from reward_server import messages
from reward_server.batch import RewardFnInfo, RowStatus, Scores
from reward_server.config import ConfigError, RewardFnConfig, RewardsConfig
from reward_server.routes import Routes

MATH = RewardFnConfig(fn="a:math", sources=("gsm8k", "math"))
CODE = RewardFnConfig(fn="a:code", sources=("code",))
EVERY = RewardFnConfig(fn="a:every")


def test_rows_go_to_the_functions_of_their_source():
    """A function without sources scores all rows, one with sources only theirs."""
    routes = Routes("source", [MATH, CODE, EVERY])
    columns = {"source": ["gsm8k", "code"]}
    sent = [[routes.sends(columns, row, fn) for fn in range(3)] for row in range(2)]
    assert sent == [[True, False, True], [False, True, True]]
    assert not list(routes.unknown(columns))


@pytest.mark.parametrize("value", ["Code", "", None, 3, ["code"]])
def test_unknown_source_is_an_error(value):
    """A row whose source no function has is scored by none and says which there are."""
    routes = Routes("source", [CODE, EVERY])
    columns = {"source": ["code", value]}
    assert list(routes.unknown(columns)) == [1]
    assert not any(routes.sends(columns, 1, fn) for fn in range(2))
    assert routes.problem(columns, 1) == f"`source` must be one of ['code'], got {value!r}"


def test_without_a_column_all_functions_score_all_rows():
    """No routing costs nothing and finds nothing."""
    routes = Routes("", [EVERY])
    assert routes.sends({}, 0, 0)
    assert not list(routes.unknown({}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[reward]]\nfn = "a:b"\nsources = ["x"]', "`route` must name the column"),
        ('[route]\ncolumn = "s"\n[[reward]]\nfn = "a:b"', "`sources` must be set"),
        ('[route]\ncolumn = ""\n[[reward]]\nfn = "a:b"', r"`column` of \[route\] must name"),
        ('[route]\ncol = "s"\n[[reward]]\nfn = "a:b"', "nearest is `column`"),
        ('[[reward]]\nfn = "a:b"\nsources = "x"', "`sources` must be a list of texts"),
    ],
)
def test_rewards_file_says_both_or_none(tmp_path, text, message):
    """A column without sources, or sources without a column, is a mistake."""
    file = tmp_path / "rewards.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        RewardsConfig.load(file)


def test_total_leaves_out_functions_of_other_sources():
    """A row that is fine has the total of the functions that scored it."""
    scores = Scores(
        rewards=np.array([[1.0, np.nan], [np.nan, 1.0], [np.nan, np.nan]], np.float32),
        statuses=np.array([RowStatus.OK, RowStatus.OK, RowStatus.ERROR], np.uint8),
        errors=[],
        extra_columns={},
        queue_s=0.0,
        decode_s=0.0,
        score_s=np.zeros(2),
    )
    fns = [RewardFnInfo(name=n, weight=w, timeout_s=1.0) for n, w in (("a", 1.0), ("b", 0.5))]
    np.testing.assert_array_equal(messages.totals(scores, fns), [1.0, 0.5, np.nan])
