# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The scripts of docs/examples/tunix_gsm8k: Tunix alone, then the same in two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/examples/tunix_gsm8k"
STEPS, PROMPTS, GENERATIONS = 2, 2, 4


def run(*command: str) -> str:
    """Runs a command on the CPU; gives what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=400,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    return text


def rewards_of(text: str) -> list[float]:
    """The mean rewards that a script printed, step by step."""
    found = re.findall(r"step (\d+) reward (\S+)", text)
    assert [int(step) for step, _ in found] == list(range(STEPS)), text
    return [float(reward) for _, reward in found]


def test_before_and_after() -> None:
    """Both train with LoRA and a reference model; after.py has two processes and two servers."""
    flags = ["--steps", str(STEPS), "--prompts", str(PROMPTS)]
    before = rewards_of(run(sys.executable, str(FOLDER / "before.py"), *flags))
    text = run(
        *(sys.executable, "-m", "deploy.local.launch", "--nodes", "2", "--cpu-devices", "1"),
        *("--tokenizer", str(FOLDER / "tokenizer"), "--rewards", str(FOLDER / "rewards.toml")),
        *("--", sys.executable, str(FOLDER / "after.py"), "--endpoint", "{endpoint}"),
        *("--coordinator", "{coordinator}", "--num-processes", "{nodes}"),
        *("--process-id", "{node}", *flags),
    )
    after = rewards_of(text)
    scored = [int(rows) for rows in re.findall(r"rows_scored=(\d+)", text)]
    assert scored == [STEPS * PROMPTS * GENERATIONS // 2] * 2
    # The functions' lowest and highest sums.
    assert all(-3 <= reward <= 9.5 for reward in before + after)
    assert len(set(before + after)) > 1
