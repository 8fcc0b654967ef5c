# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of `none = "skip"`: a function that returns None does not apply to the row, as in TRL."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration import service
from tests.unit.test_in_process_scorer import decode, request
from trainer import InProcessReward
from trainer.paths.scorer import Scorer

FUNCTIONS = """
def maths(completions, task, **_):
    return [float(len(c)) if t == "maths" else None for c, t in zip(completions, task)]

async def code(completion, task):
    return 10.0 if task == "code" else None

def group(completions, task, **_):
    return [100.0 if t == "group" else None for t in task]

def seen(completion):
    return 1000.0
"""
REWARDS = """
[[reward]]
fn = "fns.py:maths"
weight = 0.5
none = "skip"

[[reward]]
fn = "fns.py:code"
per = "row"
none = "skip"

[[reward]]
fn = "fns.py:group"
per = "group"
none = "skip"

[[reward]]
fn = "fns.py:seen"
per = "row"
weight = 0.0
"""


def scored(folder, rewards, tasks):
    """Rows of these tasks after the command has scored them."""
    (folder / "fns.py").write_text(FUNCTIONS, encoding="utf-8")
    (folder / "r.toml").write_text(rewards, encoding="utf-8")
    rows = [{"prompt": "p", "completion": "abcd", "task": task} for task in tasks]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    words = ["score", "rows.jsonl", "--rewards", "r.toml", "--out", "out.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "reward_server", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_row_has_the_total_of_those_that_apply(tmp_path):
    """Functions of one row, of lists, of groups and async ones; a row that all skip has failed."""
    rows = scored(tmp_path, REWARDS, ["maths", "code", "group", "other"])
    assert [row["reward"] for row in rows] == [2.0, 10.0, 100.0, None]
    assert [row["status"] for row in rows] == ["OK", "OK", "OK", "INVALID"]
    values = {"maths": None, "code": 10.0, "group": None, "seen": 1000.0}
    assert rows[1]["rewards"] == values
    assert "no other function with a weight has a value" in rows[3]["error"]


def test_routes_and_skips_go_together(tmp_path):
    """A source's functions may skip a row of it, and the others have no part in that."""
    rewards = '[route]\ncolumn = "task"\n' + REWARDS.replace(
        "weight = 0.5\n", 'weight = 0.5\nsources = ["maths"]\n'
    ).replace('fn = "fns.py:code"\n', 'fn = "fns.py:code"\nsources = ["code", "maths", "else"]\n')
    rows = scored(tmp_path, rewards, ["maths", "code", "else"])
    assert [row["reward"] for row in rows] == [2.0, 10.0, None]


def test_none_fails_by_default(tmp_path):
    """Without it a None takes the row out, whatever the others gave."""
    rows = scored(tmp_path, REWARDS.replace('none = "skip"\n', ""), ["maths"])
    assert [row["status"] for row in rows] == ["INVALID"]


def test_a_server_and_functions_in_the_trainer_agree(tmp_path):
    """The allgather path skips as the server does, and gives the same totals to a client."""
    names: dict = {}
    exec(FUNCTIONS, names)
    rewards = [
        InProcessReward(fn=names["maths"], weight=0.5, none="skip"),
        InProcessReward(fn=names["group"], none="skip"),
    ]
    asked = request(["abcd"] * 3, task=["maths", "group", "other"])
    (response,) = Scorer(rewards, decode).score([asked])
    got = service.totals(response.rewards)
    assert got[:2].tolist() == [2.0, 100.0]
    (tmp_path / "fns.py").write_text(FUNCTIONS, encoding="utf-8")
    assert response.rewards.statuses[2] != response.rewards.statuses[0]
    with pytest.raises(ValueError, match='`none` must be "fail" or "skip"'):
        Scorer([InProcessReward(fn=names["maths"], none="drop")], decode)
