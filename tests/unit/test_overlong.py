# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""DAPO's overlong buffer and the reward function that stands for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tunix.rl.grpo.dapo_learner import DAPOConfig

from reward_server import fn_digest
from reward_server.config import RewardFnConfig, RewardsConfig
from trainer.overlong import check_overlong

BUFFER = DAPOConfig(num_generations=2).overlong_buffer


def offer(functions: tuple[RewardFnConfig, ...]) -> dict[str, list]:
    """What a server with these functions says of them."""
    return {
        "names": [fn.name for fn in functions],
        "weights": [fn.weight for fn in functions],
        "settings": [fn_digest.settings(fn, "") for fn in functions],
    }


def lines_of(buffer: dict) -> str:
    """The lines of the rewards file that the error names."""
    with pytest.raises(ValueError, match=r"no function of the reward server is named") as error:
        check_overlong(buffer, **offer((RewardFnConfig(fn="gsm8k"),)))
    return str(error.value).partition("\n")[2]


def load(lines: str, folder: Path) -> tuple[RewardFnConfig, ...]:
    """Functions of a rewards file with these lines."""
    (folder / "rewards.toml").write_text('[[reward]]\nfn = "gsm8k"\n' + lines)
    return RewardsConfig.load(folder / "rewards.toml").functions


@pytest.mark.parametrize("buffer", [BUFFER, {**BUFFER, "overlong_buffer_penalty": 1}])
def test_the_lines_of_the_error_are_what_is_missing(buffer: dict, tmp_path: Path) -> None:
    """With the lines that the message names the same buffer is accepted."""
    check_overlong(buffer, **offer(load(lines_of(buffer), tmp_path)))


@pytest.mark.parametrize(
    "change", [{"weight": 0.5}, {"params": {"max_tokens": 9, "cache_tokens": 3}}]
)
def test_other_settings_are_refused(change: dict, tmp_path: Path) -> None:
    """A function of that name with another weight or other parameters gives other rewards."""
    *others, shaping = load(lines_of(BUFFER), tmp_path)
    changed = dataclasses.replace(shaping, **change)
    with pytest.raises(ValueError, match="has other settings"):
        check_overlong(BUFFER, **offer((*others, changed)))


@pytest.mark.parametrize("buffer", [None, {}, {"enable": False}])
def test_without_a_buffer_nothing_is_needed(buffer: dict | None) -> None:
    """A buffer that is not enabled asks for no function."""
    check_overlong(buffer, **offer((RewardFnConfig(fn="gsm8k"),)))
