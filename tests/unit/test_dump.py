# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Lines of dumped rollouts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trainer.codec import LocalRollouts, RowFailure, RowRewards
from trainer.dump import RolloutDump

END, PAD = 1, 0


def decode(ids):
    """Letters from 2 on."""
    return "".join(chr(ord("a") + i - 2) for i in ids)


def rollouts(step=0, **changes):
    """Three rows of two groups."""
    values = {
        "row_ids": np.array([4, 5, 6]),
        "group_ids": np.array([2, 2, 3]),
        "prompts": ["p", np.str_("q"), "\ud800"],
        "completion_ids": np.array([[2, 3, END, 9], [2, 3, 4, 5], [PAD, 2, PAD, END]], np.int32),
        "end_token_ids": [END],
        "pad_token_id": PAD,
        "columns": {"answer": np.array([1, 2, 3]), "entry": [{"x": [1]}, None, "t"]},
        "step": step,
    }
    return LocalRollouts(**(values | changes))


def rewards():
    """Their rewards; the second row failed."""
    return RowRewards(
        reward_fns=("f", "g"),
        rewards=np.array([[0.1, 1], [np.nan, 2], [0.5, np.nan]], np.float32),
        totals=np.array([0.6, np.nan, 0.5], np.float32),
        valid=np.array([True, False, True]),
        failures=[RowFailure(5, "TIMEOUT", "f", "ran longer than 1 s")],
        extra_columns={},
        queue_s=0.0,
        total_s=0.0,
    )


def lines(file):
    """What the file holds."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_line_for_each_row(tmp_path):
    """Texts end before the end token, numbers are short, columns are keys of their own."""
    dump = RolloutDump(tmp_path / "d.jsonl", decode=decode)
    dump.write(rollouts(step=3, completion_prefixes=["<", "", ""]), rewards())
    first, second, third = lines(tmp_path / "d.jsonl")
    assert first == {
        "step": 3,
        "mode": "train",
        "row_id": 4,
        "group_id": 2,
        "prompt": "p",
        "completion": "<ab",
        "answer": 1,
        "entry": {"x": [1]},
        "rewards": {"f": 0.1, "g": 1.0},
        "reward": 0.6,
        "status": "OK",
        "error": None,
    }
    assert (second["completion"], second["reward"], second["status"]) == ("abcd", None, "TIMEOUT")
    assert second["error"] == "f: ran longer than 1 s"
    assert second["rewards"] == {"f": None, "g": 2.0}
    assert (third["prompt"], third["completion"]) == ("\ud800", "a")


def test_a_run_that_goes_on_keeps_earlier_steps(tmp_path):
    """Steps that are made again replace theirs, and a line that was cut off is dropped."""
    file = tmp_path / "d.jsonl"
    dump = RolloutDump(file, decode=decode)
    for step in range(3):
        dump.write(rollouts(step), rewards())
    with file.open("a", encoding="utf-8") as out:
        out.write('{"step": 1, "mo')
    again = RolloutDump(file, decode=decode)
    again.write(rollouts(2), rewards())
    again.write(rollouts(3), rewards())
    assert [line["step"] for line in lines(file)] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


@pytest.mark.parametrize("wrong", ["folder", "column", "value"])
def test_a_dump_that_fails_is_logged_once(tmp_path, caplog, wrong):
    """Training goes on without it."""
    folder = tmp_path / ("none" if wrong == "folder" else "")
    columns = {"reward" if wrong == "column" else "x": [{1, 2} if wrong == "value" else 1] * 3}
    dump = RolloutDump(folder / "d.jsonl", decode=decode)
    dump.write(rollouts(columns=columns), rewards())
    dump.write(rollouts(columns=columns), rewards())
    (record,) = caplog.records
    assert f"not written file={folder / 'd.jsonl'}" in record.getMessage()
