# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the rewards file and the pool's limits."""

from __future__ import annotations

import pytest

from reward_server.config import ConfigError, PoolConfig, RewardsConfig


def load(tmp_path, text):
    """Loads a rewards file with this text."""
    path = tmp_path / "rewards.toml"
    path.write_text(text, encoding="utf-8")
    return RewardsConfig.load(path)


def test_load_fills_in_defaults_and_resolves_files(tmp_path):
    """A short entry gets the defaults; a file is taken relative to the rewards file."""
    config = load(
        tmp_path,
        """
        [[reward]]
        fn = "gsm8k"
        [[reward]]
        name = "mine"
        fn = "fns/mine.py:score"
        weight = 0
        per = "row"
        probe = {prompt = "p", completion = "c", columns = {answer = "4"}}
        """,
    )
    first, second = config.functions
    assert (first.name, first.weight, first.timeout_s, first.per) == ("gsm8k", 1.0, 10.0, "list")
    assert first.skip_special_tokens
    assert first.probe is None
    assert second.fn == f"{tmp_path / 'fns/mine.py'}:score"
    assert second.probe.columns == {"answer": "4"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`reward` must be one table or more"),
        ("reward = 3", "must be a list of tables"),
        ("[[rewards]]\nfn = 'a'", "nearest is `reward`"),
        ("[[reward]]\nfn = 'a'\ntimeout = 3", "`timeout` is no key .* nearest is `timeout_s`"),
        ("[[reward]]\nname = 'a'", "`fn` must be set"),
        ("[[reward]]\nfn = 'a'\nname = ''", "`name` must not be empty"),
        ("[[reward]]\nfn = 3", "`fn` must be a built-in name"),
        ("[[reward]]\nfn = 'a:'", "`fn` must be a built-in name"),
        ("[[reward]]\nfn = 'a'\nweight = nan", "`weight` must be a finite number, got nan"),
        ("[[reward]]\nfn = 'a'\nweight = true", "`weight` must be a finite number, got True"),
        ("[[reward]]\nfn = 'a'\ntimeout_s = 0", "`timeout_s` must be > 0 seconds, got 0"),
        (
            "[[reward]]\nfn = 'a'\nper = 'batch'",
            '`per` must be "list", "row" or "group", got \'batch\'',
        ),
        ("[[reward]]\nfn = 'a'\nskip_special_tokens = 1", "must be true or false, got 1"),
        ("[[reward]]\nfn = 'a'\nprobe = 1", "`probe` must be a table"),
        ("[[reward]]\nfn = 'a'\nprobe = {answer = 1}", "`answer` is no key of `probe`"),
        ("[[reward]]\nfn = 'a'\n[[reward]]\nfn = 'm:a'", "`name` must be unique .* 'a' twice"),
        ("[[reward", "must be TOML in UTF-8"),
    ],
)
def test_load_refuses(tmp_path, text, message):
    """A wrong file is refused with the field, the rule and the value."""
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_load_names_a_missing_file(tmp_path):
    """A file that is not there is named."""
    with pytest.raises(ConfigError, match=r"absent.toml must be a readable file"):
        RewardsConfig.load(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "values", [{"slots": 0}, {"rows_per_child": 1.5}, {"start_timeout_s": 0}, {"slots": True}]
)
def test_pool_config_refuses(values):
    """Limits outside their range are refused by name."""
    with pytest.raises(ConfigError, match=f"`{next(iter(values))}` must be"):
        PoolConfig(**values)
