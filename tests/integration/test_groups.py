# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of functions that see whole groups, with real children, servers and workers."""

from __future__ import annotations

import grpc
import numpy as np
import pytest

from reward_server.batch import RowStatus
from reward_server.config import RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.pool import Pool
from tests.integration import pools, service

OK, ERROR, INVALID, TIMEOUT, CRASHED, OOM = RowStatus
RANK = pools.fn("rank", per="group", timeout_s=1.0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Path of a tokenizer of single characters."""
    return pools.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def groups(*texts, **values):
    """A batch of groups, each a list of completions."""
    ids = np.repeat(np.arange(len(texts)), [len(group) for group in texts])
    return pools.batch(
        [completion for group in texts for completion in group],
        prompts=[f"p{i}" for i in ids],
        group_ids=ids.astype(np.int64),
        **values,
    )


async def test_groups_stay_whole_in_chunks(tokenizer):
    """However rows are shared among children, a function sees its groups whole and in order."""
    texts = [["x" * (1 + (g * 7 + i * 3) % 11) for i in range(1 + g % 6)] for g in range(300)]
    async with pools.running(tokenizer, RANK, pools.fn("length"), slots=2) as pool:
        assert pool.reward_fns[0].whole_groups
        for _ in range(3):  # chunk sizes change with what rows have taken
            scores = await pool.score(groups(*texts), timeout_s=60)
            lengths = [np.array([len(c) for c in group]) for group in texts]
            expected = np.concatenate([n - n.mean() for n in lengths])
            np.testing.assert_allclose(scores.rewards[:, 0], expected, atol=1e-5)
            np.testing.assert_array_equal(scores.rewards[:, 1], np.concatenate(lengths))
            assert (scores.statuses == OK).all()


async def test_group_that_goes_wrong_takes_no_other_with_it(tokenizer):
    """A hang, an exception or a wrong length is the whole group's; None is its row's alone."""
    texts = [["a", "bb"], ["raise", "b"], ["a", "hang"], ["short", "b"], ["none", "bb"], ["a", "c"]]
    async with pools.running(tokenizer, RANK, slots=1) as pool:
        scores = await pool.score(groups(*texts), timeout_s=60)
    assert scores.statuses.reshape(-1, 2).tolist() == [
        [OK, OK],
        [ERROR, ERROR],
        [TIMEOUT, TIMEOUT],
        [INVALID, INVALID],
        [INVALID, OK],
        [OK, OK],
    ]
    assert "not this group" in scores.errors[0].message
    assert "returned 1 values for 2 rows" in scores.errors[4].message
    np.testing.assert_array_equal(scores.rewards[[0, 1, 10, 11], 0], [-0.5, 0.5, 0.0, 0.0])


async def test_row_that_kills_its_child_keeps_the_group(tokenizer):
    """Rows of a group whose neighbour crashed in another function have both values."""
    faulty = pools.fn("faulty", timeout_s=5.0)
    async with pools.running(tokenizer, RANK, faulty, slots=1) as pool:
        scores = await pool.score(groups(["a", "hardexit", "ccc"], ["d", "e"]), timeout_s=60)
    assert scores.statuses.tolist() == [OK, CRASHED, OK, OK, OK]
    expected = np.array([1, 8, 3]) - 4.0
    np.testing.assert_array_equal(scores.rewards[:3, 0], expected)
    assert np.isfinite(scores.rewards[[0, 2, 3, 4], 1]).all()


@pytest.mark.parametrize(
    ("ids", "generations", "message"),
    [
        ([], 0, "`group_ids` must have one value per row"),
        ([1, 1, 2], 2, "group 2 must have 2 rows in one call for 'rank', got 1"),
        ([1, 2, 1], 0, "`group_ids` must have the rows of a group side by side"),
    ],
)
async def test_parts_of_groups_are_refused(tokenizer, tmp_path, ids, generations, message):
    """Groups that are cut or mixed are an error of the call, not a wrong reward."""
    pool = Pool(RewardsConfig(functions=(RANK,)), tokenizer)
    async with service.serving(tmp_path, pool, Tokenizer.load(tokenizer)) as (stub, _):
        request = service.request(["a", "b", "c"])
        request.rollouts.group_ids.extend(ids)
        request.rollouts.num_generations = generations
        with pytest.raises(grpc.aio.AioRpcError, match=message) as error:
            await stub.ScoreRollouts(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
