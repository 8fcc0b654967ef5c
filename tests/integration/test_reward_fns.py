# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Hazardous completions in real children: no other row is harmed."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers

from bench import cases
from reward_server.batch import Batch, RowStatus
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.reward_fns import BUILT_IN
from tests.integration import pools

HAZARDS = [
    case
    for kind in ("math", "robustness", "format")
    for case in cases.load(kind)
    if case.get("hazard") and case["expected"] != "convention"
]
BOMBS = [
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{((9!)!)!}",
    r"\boxed{\sum_{k=1}^{99999999} k!}",
    r"\boxed{\int_0^1 x^{x^{x}} dx}",
    r"\boxed{" + r"\sqrt{1+" * 80 + "x" + "}" * 80 + "}",
    r"\boxed{" + "+".join(rf"\sin({i}^{{900}}x)" for i in range(100, 180)) + "}",
    r"\boxed{" + "*".join(f"{i}!" for i in range(2900, 2990)) + "}",
    r"\boxed{" + r"\frac{1}{1+" * 80 + "x^{900}" + "}" * 80 + "}",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer of bytes, which gives back any text."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    pools.byte_tokenizer().save(str(path))
    return path


async def score(tokenizer, name, completions, timeout_s, **columns):
    """Scores completions with a built-in function in children."""
    inner = tokenizers.Tokenizer.from_file(str(tokenizer))
    ids = [inner.encode(text).ids for text in completions]
    functions = (RewardFnConfig(fn=name, timeout_s=timeout_s),)
    pool = Pool(RewardsConfig(functions=functions), tokenizer, PoolConfig(slots=2))
    await pool.start()
    try:
        return await pool.score(
            Batch(
                completion_ids=np.asarray([i for row in ids for i in row], np.int32),
                completion_lengths=np.asarray([len(row) for row in ids], np.int64),
                prompts=[""] * len(completions),
                row_ids=list(range(len(completions))),
                columns=columns,
            ),
            timeout_s=250,
        )
    finally:
        await pool.close()


async def test_hazards_of_math(tokenizer):
    """Hazards get their verdict or a timeout, the rows between them their reward."""
    hazards = [(c, g, e) for case in HAZARDS if cases.function_name(case) == "math"
               for c, g, e in cases.rows(case)]  # fmt: skip
    hazards += [(bomb, "42", "timeout-handled") for bomb in BOMBS]
    rows = [row for hazard in hazards for row in (hazard, (r"\boxed{42}", "42.0", 1.0))]
    scores = await score(
        tokenizer, "math", [c for c, _, _ in rows], 30.0, answer=[g for _, g, _ in rows]
    )
    for row, (completion, _, expected) in enumerate(rows):
        if expected == "timeout-handled":
            assert scores.statuses[row] in (RowStatus.OK, RowStatus.TIMEOUT), completion[:100]
            assert scores.statuses[row] == RowStatus.TIMEOUT or scores.rewards[row, 0] == 0.0
        else:
            assert scores.statuses[row] == RowStatus.OK, completion[:100]
            assert scores.rewards[row, 0] == expected, completion[:100]


async def test_bad_gold_is_an_error_of_its_row(tokenizer):
    """The row has an error that names the column, and no reward."""
    scores = await score(
        tokenizer, "math", [r"\boxed{1}"] * 3, 10.0, answer=["1", r"\frac{0}{0}", "1"]
    )
    assert list(scores.statuses) == [RowStatus.OK, RowStatus.ERROR, RowStatus.OK]
    (error,) = scores.errors
    assert error.row == 1
    assert "BadGold: `answer` must be a mathematical answer" in error.message
    assert scores.rewards[[0, 2], 0].tolist() == [1.0, 1.0]


async def test_regular_expression_that_hangs(tokenizer):
    """The text earns 0.0, since texts do not choose to have no reward."""
    scores = await score(
        tokenizer, "regex_match", ["a", "a" * 60 + "!", "aa"], 2.0, regex=["(a+)+"] * 3
    )
    assert list(scores.statuses) == [RowStatus.OK] * 3
    assert scores.rewards[:, 0].tolist() == [1.0, 0.0, 1.0]


async def test_every_built_in_starts(tokenizer):
    """Each function that needs no parameters is loaded by a child, which scores its example."""
    names = sorted(BUILT_IN.keys() - {"llm_judge", "reward_model"})
    functions = tuple(RewardFnConfig(fn=name) for name in names)
    pool = Pool(RewardsConfig(functions=functions), tokenizer, PoolConfig(slots=1))
    await pool.start()
    await pool.close()
