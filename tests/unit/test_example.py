# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The example for Tunix users: what changes in the script, and what does not."""

from __future__ import annotations

import difflib
import importlib.util
import tomllib
from pathlib import Path

import pytest
from tunix.cli.reward_fn import gsm8k

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "examples/tunix_gsm8k"
SCRIPTS = ("before.py", "after.py")
NAMES = ("match_format_exactly", "match_format_approximately", "check_answer", "check_numbers")
COMPLETIONS = [
    "<reasoning>2 + 2</reasoning><answer>4</answer>",
    "<reasoning>2 + 2</reasoning>\nso <answer> 1,234 </answer>",
    "<reasoning>x</reasoning><answer>4.2</answer>",
    "<reasoning>x</reasoning><answer>4.7</answer>",
    "<reasoning>x</reasoning><answer>-70</answer>",
    "<reasoning>x</reasoning><answer>four</answer>",
    "<reasoning>x</reasoning><answer>4.0",
    "<answer>about 4</answer>",
    "<answer>4<answer>4",
    "<reasoning></reasoning><answer>4</answer>",
    "4",
    "",
]


def changes() -> list[str]:
    """The lines of a diff from before.py to after.py, their docstrings left out."""
    before, after = ((FOLDER / name).read_text().splitlines()[4:] for name in SCRIPTS)
    return list(difflib.unified_diff(before, after, *SCRIPTS, n=0, lineterm=""))


def test_three_places_change() -> None:
    """Besides imports, a flag and SIGTERM: rollout engine, learner and reward functions."""
    added = [line[1:].strip() for line in changes()[2:] if line.startswith("+") and line != "+"]
    assert added == [
        "import signal",
        "from tunix.rl.grpo.grpo_learner import GRPOConfig",
        "from trainer import RewardClient, ShardedGRPOLearner, ShardedRollout",
        'parser.add_argument("--endpoint", required=True)',
        "rollout_engine=ShardedRollout,",
        "learner = ShardedGRPOLearner(",
        "reward_fns=RewardClient(flags.endpoint),",
        'data="replicated",',
        'signal.signal(signal.SIGTERM, lambda *_: learner.request_stop("SIGTERM"))',
    ]


def test_documented_diff_is_the_diff() -> None:
    """The diff in the documentation is that of the scripts."""
    diff = "\n".join(line for line in changes()[2:] if not line.startswith("@@"))
    assert any(diff in file.read_text() for file in DOCS.glob("*.md")), diff


@pytest.mark.parametrize("name", NAMES)
def test_reward_functions_are_tunix_s(name: str) -> None:
    """Ours give what Tunix's functions of the same names give."""
    spec = importlib.util.spec_from_file_location("gsm8k_rewards", FOLDER / "rewards.py")
    rewards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rewards)
    answers = ["4", "1234", "4", "4", "4", "4", "4", "4", "4", "4", "4", "0"]
    prompts = ["?"] * len(COMPLETIONS)
    ours, theirs = (
        getattr(module, name)(prompts, COMPLETIONS, answer=answers) for module in (rewards, gsm8k)
    )
    assert ours == theirs
    assert len(set(ours)) > 1


def test_rewards_file_has_all_functions_in_order() -> None:
    """The rewards file lists what before.py gives to its learner."""
    listed = tomllib.loads((FOLDER / "rewards.toml").read_text())["reward"]
    assert [entry["fn"] for entry in listed] == [f"rewards.py:{name}" for name in NAMES]
