# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of a pool on rows that come as text, and of the seconds that it counts for each row."""

from __future__ import annotations

import dataclasses

import numpy as np

from reward_server.batch import Batch, RowStatus
from reward_server.config import Probe
from tests.integration import pools


def texts(completions, **columns):
    """A batch of these texts."""
    return Batch(
        completion_ids=np.zeros(0, np.int32),
        completion_lengths=np.zeros(len(completions), np.int64),
        completions=completions,
        prompts=["p"] * len(completions),
        columns=columns,
        row_ids=list(range(len(completions))),
    )


async def test_text_rows_need_no_tokenizer():
    """Texts arrive as they are, half surrogates and NUL too, in children that have no tokenizer."""
    rows = ["", "a\0b", "\ud800", "é" * 1000, "x" * 2**20, *("b" * n for n in range(300))]
    async with pools.running(None, pools.fn("length")) as pool:
        scores = await pool.score(texts(rows), timeout_s=60)
    assert scores.rewards[:, 0].tolist() == [len(row) for row in rows]
    assert not scores.errors


async def test_ids_without_a_tokenizer_are_errors():
    """Rows of ids have an error, and no reward, where nothing can decode them."""
    async with pools.running(None, pools.fn("length")) as pool:
        scores = await pool.score(pools.batch(["abc"]), timeout_s=60)
    assert scores.statuses.tolist() == [RowStatus.ERROR]
    assert "there is no tokenizer" in scores.errors[0].message


async def test_a_function_of_ids_gets_no_empty_ones(tmp_path):
    """A function that takes ids says so for a row of text, sync and async; the others run on."""
    (tmp_path / "ids.py").write_text(
        "def by_id(completions, completion_ids, **_):\n"
        "    return [float(len(completion_ids[0]))]\n"
        "async def by_id_async(completions, completion_ids, **_):\n"
        "    return [float(len(completion_ids[0]))]\n",
        encoding="utf-8",
    )
    for name in ("by_id", "by_id_async"):
        function = pools.fn(f"{tmp_path}/ids.py:{name}")
        async with pools.running(None, function, pools.fn("length")) as pool:
            scores = await pool.score(texts(["abc"]), timeout_s=60)
        assert np.isnan(scores.rewards[0, 0])
        assert scores.rewards[0, 1] == 3
        (error,) = scores.errors
        assert (error.reward_fn, error.status) == (name, RowStatus.ERROR)
        assert "takes completion_ids" in error.message


async def test_groups_of_text(tmp_path):
    """A function of groups gets texts; the seconds of a killed group are those it ran."""
    (tmp_path / "group.py").write_text(
        "import time\n"
        "def together(completions, **_):\n"
        "    if 'sleep' in completions:\n"
        "        time.sleep(600)\n"
        "    return [float(len(completions))] * len(completions)\n"
        "def ids(completions, completion_ids, **_):\n"
        "    return [1.0] * len(completions)\n",
        encoding="utf-8",
    )
    rows = dataclasses.replace(texts(["a", "b", "sleep"]), group_ids=np.array([0, 0, 1]))
    together = pools.fn(f"{tmp_path}/group.py:together", per="group", timeout_s=0.5)
    async with pools.running(None, together, slots=1) as pool:
        scores = await pool.score(rows, timeout_s=60)
    assert scores.rewards[:2, 0].tolist() == [2.0, 2.0]
    assert scores.statuses.tolist() == [RowStatus.OK, RowStatus.OK, RowStatus.TIMEOUT]
    assert scores.row_s[2] >= 0.5
    assert 0 < scores.row_s[0] < scores.row_s[2]
    async with pools.running(None, pools.fn(f"{tmp_path}/group.py:ids", per="group")) as pool:
        scores = await pool.score(rows, timeout_s=60)
    assert ["takes completion_ids" in error.message for error in scores.errors] == [True] * 3


async def test_each_row_has_its_seconds():
    """Slow rows, rows that are killed and rows that wait in `async def` show in their seconds."""
    seconds = [0.0, 0.3, 0.0]
    probe = Probe(completion="x", columns={"seconds": 0})
    async with pools.running(None, pools.fn("slow_tail", probe=probe)) as pool:
        scores = await pool.score(texts(["a"] * 3, seconds=seconds), timeout_s=60)
    assert scores.row_s.argmax() == 1
    assert 0.25 < scores.row_s[1] < 30
    async with pools.running(None, pools.fn("faulty", timeout_s=0.5)) as pool:
        scores = await pool.score(texts(["a", "sleep", "b"]), timeout_s=60)
    assert scores.statuses.tolist() == [RowStatus.OK, RowStatus.TIMEOUT, RowStatus.OK]
    assert scores.row_s.argmax() == 1
    assert scores.row_s[1] >= 0.5
    async with pools.running(None, pools.fn("judge")) as pool:
        scores = await pool.score(texts(["a", "b"]), timeout_s=60)
    assert (scores.row_s >= 0.04).all()
