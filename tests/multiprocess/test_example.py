# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The scripts of docs/examples/tunix_gsm8k: Tunix alone, then the same in two processes."""

from __future__ import annotations

import re
import sys

import pytest

from tests.multiprocess.conftest import ROOT, run_command

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(1800)]

FOLDER = ROOT / "docs/examples/tunix_gsm8k"
STEPS, PROMPTS, GENERATIONS = 2, 2, 4


def rewards_of(text: str) -> list[float]:
    """The mean rewards that a script printed, step by step."""
    found = re.findall(r"step (\d+) reward (\S+)", text)
    assert [int(step) for step, _ in found] == list(range(STEPS)), text
    return [float(reward) for _, reward in found]


def test_before_and_after() -> None:
    """Both train with LoRA and a reference model; after.py has two processes and two servers."""
    flags = ["--steps", str(STEPS), "--prompts", str(PROMPTS)]
    cpu = {"JAX_PLATFORMS": "cpu"}
    before = rewards_of(
        run_command(sys.executable, FOLDER / "before.py", *flags, timeout_s=400, **cpu)
    )
    text = run_command(
        *(sys.executable, "-m", "deploy.local.launch", "--nodes", "2", "--cpu-devices", "1"),
        *("--tokenizer", str(FOLDER / "tokenizer"), "--rewards", str(FOLDER / "rewards.toml")),
        *("--", sys.executable, str(FOLDER / "after.py"), "--endpoint", "{endpoint}"),
        *("--coordinator", "{coordinator}", "--num-processes", "{nodes}"),
        *("--process-id", "{node}", *flags),
        timeout_s=400,
        **cpu,
    )
    after = rewards_of(text)
    scored = [int(rows) for rows in re.findall(r"rows_scored=(\d+)", text)]
    assert scored == [STEPS * PROMPTS * GENERATIONS // 2] * 2
    # The functions' lowest and highest sums.
    assert all(-3 <= reward <= 9.5 for reward in before + after)
    assert len(set(before + after)) > 1
