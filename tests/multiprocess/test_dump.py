# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts that a training of two processes dumps, and their scores by `reward-server score`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.multiprocess.conftest import ROOT, launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]


def dumped(folder: Path) -> list[dict[str, Any]]:
    """Rows of both processes."""
    files = [folder / f"rollouts-{process}.jsonl" for process in (0, 1)]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_dumped_rows_are_those_that_were_scored(tmp_path: Path) -> None:
    """Every row once, failed ones too, with the texts and columns that the functions got."""
    plain = {"run": "train", "steps": 2, "fail": True}
    stopped = {**plain, "max_failed_fraction": 0.01, "dump": str(tmp_path / "stopped")}
    whole = {**plain, "dump": str(tmp_path / "whole")}
    for name in ("stopped", "whole"):
        (tmp_path / name).mkdir()
    run = launch(tmp_path / "run", 2, [plain, whole, stopped], 800)
    # What is dumped changes nothing.
    assert run.of(1)["params"] == run.of(0)["params"]
    rows = dumped(tmp_path / "whole")
    ids = [row for process in (0, 1) for call in run.of(1, process)["row_ids"] for row in call]
    assert sorted(row["row_id"] for row in rows) == sorted(ids)
    assert {(row["step"], row["mode"]) for row in rows} == {(0, "train"), (1, "train")}
    assert all(row["group_id"] == row["row_id"] // 4 for row in rows)
    failed = [row for row in rows if row["status"] != "OK"]
    assert len(failed) == sum(run.of(1)["failed"]) > 0
    for row in failed:
        assert row["reward"] is None
        assert row["error"].startswith("letters: ValueError: no reward for this one")
    # The console says how many failed in each step and where, and nothing that a function said.
    lines = [line for line in run.logs[0].splitlines() if "rows failed" in line]
    cause = r"rewards of step \d \(train\): rows failed rows=(\d+) of=\d+ status=ERROR fn=letters"
    where = r"worker=- cause=ValueError \(line \d+ of rewards\.py\)"
    counts = [re.search(f"{cause} {where}$", line) for line in lines]
    assert sum(int(found[1]) for found in counts if found) >= 2 * len(failed)
    assert all(counts), lines
    assert "rows failed" not in run.logs[1]
    # The function hashes prompt, completion and answer: other texts have other rewards.
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = (file, "--out", file, "--rewards", tmp_path / "run" / "rewards.toml")
    done = subprocess.run(
        [sys.executable, "-m", "reward_server", "score", *flags],
        cwd=ROOT,
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stderr.decode()
    assert [json.loads(line) for line in file.read_text().splitlines()] == rows
    # The rows of a step that ended the run are the ones to look at.
    assert "max_failed_fraction" in run.raw(2)["error"]
    assert {row["step"] for row in dumped(tmp_path / "stopped")} == {0}
