# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward function that says what no message can hold costs its row, never the call."""

from __future__ import annotations

import numpy as np
import pytest

from reward_server.batch import RowStatus
from reward_server.config import PoolConfig, RewardsConfig
from reward_server.pool import Pool
from tests.integration import service
from trainer import codec

SOURCE = r"""
import json, sys
TEXT = json.loads('"\\ud800 \\u0000 \\u001b[2J \\u0085"')

class Odd(Exception):
    pass

def speaks(completions, log_extra):
    (completion,) = completions
    log_extra(TEXT if completion != "long" else "n" * 10**6, 1.0)
    print(TEXT.encode("utf-8", "surrogatepass"), file=sys.stderr)
    if completion == "raise":
        raise Odd(TEXT)
    if completion == "long":
        raise Odd(TEXT * 10**6)
    return [1.0]

async def async_speaks(completions):
    if completions[0] == "async":
        raise Odd(TEXT)
    return [1.0]
"""
REWARDS = """
[[reward]]
fn = "mine.py:speaks"
[[reward]]
fn = "mine.py:async_speaks"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of a server with such functions."""
    made = service.write_files(tmp_path_factory.mktemp("files"), rewards=REWARDS)
    (made / "mine.py").write_text(SOURCE)
    return made


async def test_texts_of_functions_never_fail_a_call(tmp_path, folder, tokenizer):
    """Lone surrogates and control characters arrive escaped, in errors and names of columns."""
    pool = Pool(RewardsConfig.load(folder / "rewards.toml"), folder, PoolConfig(slots=1))
    texts = ["good", "raise", "async", "long"]
    request = service.request(texts)
    async with service.serving(tmp_path, pool, tokenizer) as (stub, _):
        answer = await stub.ScoreRollouts(request, timeout=60)
    rewards = codec.decode_response(request, answer)
    assert list(answer.rewards.statuses) == [RowStatus.OK] + [RowStatus.ERROR] * 3
    assert rewards.totals[0] == 2.0
    assert np.isnan(rewards.totals[1:]).all()
    escaped = "\\ud800 \\x00 \\x1b[2J \\x85"
    messages = [failure.message for failure in rewards.failures]
    assert messages[:2] == [
        f"Odd: {escaped} (line 13 of mine.py)",
        f"Odd: {escaped} (line 20 of mine.py)",
    ]
    assert len(messages[2]) == 1000
    assert set(rewards.extra_columns) == {escaped, "n" * 100}
