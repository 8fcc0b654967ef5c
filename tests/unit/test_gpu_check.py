# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The verdict of deploy/gpu_check.sh on written results, and its end where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import gpu_check

ROOT = Path(__file__).parents[2]


def write(folder: Path, *, logp=-1.0, completion="7", reward=0.2, first=0.5, last=1.0, loss=0.001):
    """Results of a run of 20 steps with 20 rows in the first one."""
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_text(json.dumps({"logps": [[logp, -2.0]]}))
    steps = [(i, first if i < 10 else last) for i in range(20)]
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": i, "reward_mean": r, "loss": loss}) + "\n" for i, r in steps)
    )
    rows = [
        {"step": 0, "row_id": i, "completion": completion if i < 5 else "8", "rewards": {"a": 0.2}}
        for i in range(20)
    ]
    rows[-1]["rewards"] = {"a": reward}
    (folder / "rollouts-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, []),
        ({"logp": -1.01, "loss": 0.002, "last": 1.1}, []),
        ({"logp": -1.1}, ["log-probabilities of the first policy"]),
        ({"logp": float("nan")}, ["log-probabilities of the first policy"]),
        ({"completion": "6"}, ["rows of the first step that are the same"]),
        ({"reward": 1.2}, ["rewards of these rows"]),
        ({"loss": 0.1}, ["loss of the first step"]),
        ({"first": 0.6}, ["reward of the first step"]),
        ({"last": 0.7}, ["reward of the last 10 steps"]),
        ({"last": 0.5}, ["reward of the last 10 steps", "the device's policy has learnt"]),
    ],
)
def test_verdict(tmp_path, capsys, change, failing):
    """Each difference beyond its tolerance is named and fails the check; rounding does not."""
    folders = [write(tmp_path / "a"), write(tmp_path / "b", **change)]
    code = gpu_check.main(["compare", *map(str, folders)])
    lines = capsys.readouterr().out.splitlines()
    named = [line.removeprefix("DIFFERS").strip() for line in lines if line.startswith("DIFFERS")]
    assert [name.partition(":")[0] for name in named] == failing
    assert code == bool(failing)
    assert ("agrees" in lines[-1]) is not bool(failing)


def test_no_device_is_exit_code_4(tmp_path):
    """Without the device it ends at once, with its own code and what to do."""
    environment = {
        **os.environ,
        "DEVICE": "rocm",
        "PYTHON": sys.executable,
        "OUT": str(tmp_path / "out"),
    }
    done = subprocess.run(
        [ROOT / "deploy/gpu_check.sh"],
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4
    assert b"finds no device for DEVICE=rocm" in done.stderr
    assert not (tmp_path / "out").exists()
