# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""LoRA in several processes: `grpo-train --lora-rank`, its checkpoints, and going on from them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.multiprocess.conftest import run_command
from trainer import recipes

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(1800)]

RANK = 2


def train(folder: Path, *, nodes: int, steps: int) -> str:
    """Trains the tiny recipe through the launcher, on 4 devices in all; gives what it printed."""
    recipe = recipes.load("tiny")
    return run_command(
        *(sys.executable, "-m", "deploy.local.launch", "--nodes", str(nodes)),
        *("--cpu-devices", str(4 // nodes), "--tokenizer", recipe.tokenizer_dir),
        *("--rewards", recipe.rewards_file, "--"),
        *(sys.executable, "-m", "trainer.cli", "--reward-endpoint", "{endpoint}"),
        *("--coordinator", "{coordinator}", "--num-processes", "{nodes}"),
        *("--process-id", "{node}", "--recipe", "tiny", "--lora-rank", str(RANK)),
        *("--mesh", "fsdp=2,tp=2", "--steps", str(steps), "--out", folder),
        *("--checkpoint-dir", folder / "checkpoints", "--checkpoint-every", "3"),
        timeout_s=400,
    )


def metrics(folder: Path) -> list[dict[str, object]]:
    """Lines of metrics.jsonl without times."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: line[k] for k in ("step", "reward_mean", "loss", "rows")} for line in lines]


def test_two_processes_go_on_from_a_lora_checkpoint(tmp_path: Path) -> None:
    """Two processes that went on from a checkpoint end with the numbers of one unbroken process."""
    train(tmp_path / "two", nodes=2, steps=3)
    text = train(tmp_path / "two", nodes=2, steps=5)
    assert "resumed after step 3 from" in text
    train(tmp_path / "one", nodes=1, steps=5)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert [line["step"] for line in one] == list(range(5))
    assert len({line["reward_mean"] for line in one}) > 1
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    saved = (tmp_path / "two/checkpoints/actor/5/model_params/_METADATA").read_text()
    names = {
        part["key"]
        for leaf in json.loads(saved)["tree_metadata"].values()
        for part in leaf["key_metadata"]
        if "_lora_" in part["key"]
    }
    leaves = json.loads(saved)["tree_metadata"].values()
    assert names >= {"w_lora_a", "w_lora_b", "kernel_lora_a", "kernel_lora_b"}
    assert all(any("_lora_" in part["key"] for part in leaf["key_metadata"]) for leaf in leaves)
