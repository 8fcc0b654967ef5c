# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""More calls than a server can take: it refuses some, and they are scored when they come again."""

from __future__ import annotations

import asyncio
import concurrent.futures

import grpc
import pytest
from google.rpc import error_details_pb2

from reward_server.config import PoolConfig, RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.pool import Pool
from tests.integration import clients, service
from trainer import RewardClient, Unavailable
from trainer.config import MAX_MESSAGE_BYTES

LIMIT_BYTES = 50_000
REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:steady"
probe = {{ completion = "x" }}

[[reward]]
fn = "{service.FUNCTIONS}:slow_tail"
weight = 0.0
probe = {{ completion = "x", columns = {{ seconds = 0 }} }}
"""


@pytest.fixture
def serving(tmp_path, files):
    """A server whose queue takes two calls of 40 rows."""
    pool = Pool(RewardsConfig.load(files / "rewards.toml"), files, PoolConfig(slots=2))
    return service.serving(tmp_path, pool, Tokenizer.load(files), max_queue_bytes=LIMIT_BYTES)


async def test_clients_that_back_off_get_all_rows(tmp_path, serving):
    """Twelve clients at once: some calls are refused, none fails, and the queue has its bound."""
    most = 0

    def train(number):
        client = RewardClient(f"unix:{tmp_path}/s", timeout_s=200)
        try:
            first = 1000 * number
            rows = clients.rollouts(40, first=first, columns={"seconds": [0.0] * 40})
            return client.score(rows).totals.tolist() == clients.lengths(40, first=first)
        finally:
            client.close()

    async with serving as (_, handler):
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            calls = [loop.run_in_executor(threads, train, number) for number in range(12)]
            while not all(call.done() for call in calls):
                most = max(most, handler.info().queue_bytes)
                await asyncio.sleep(0.01)
        assert all(call.result() for call in calls)
        info = handler.info()
    assert info.calls_refused > 0
    assert 0 < most <= LIMIT_BYTES
    assert (info.queue_bytes, info.rows_scored) == (0, 12 * 40)


async def test_a_full_queue_takes_retries_only(serving):
    """A new call is told when to come again; one that is known joins; the books are right after."""
    first, second, small = (
        service.request(["ab"] * rows, request_id=name, seconds=seconds)
        for name, rows, seconds in (("first", 60, 0.1), ("second", 60, 0.0), ("small", 1, 0.0))
    )
    async with serving as (stub, handler):
        call = stub.ScoreRollouts(first, timeout=100)
        await service.happened(lambda: handler.info().queue_bytes > 30_000)
        retry = stub.ScoreRollouts(first, timeout=100)
        await service.happened(lambda: handler.calls_joined == 1)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ScoreRollouts(second, timeout=100)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert service.reason(error.value) == "QUEUE_FULL"
        assert "--max-queue-mb" in error.value.details()
        delay = service.info_of(error.value, error_details_pb2.RetryInfo()).retry_delay
        assert delay.ToTimedelta().total_seconds() > 0
        await stub.ScoreRollouts(small, timeout=100)
        assert await call == await retry
        await stub.ScoreRollouts(second, timeout=100)
        info = handler.info()
    assert (info.calls_refused, info.calls_joined, info.queue_bytes) == (1, 1, 0)
    assert info.memo_bytes > 0


async def test_a_call_larger_than_the_queue_is_scored_alone(serving):
    """Otherwise it would never be scored."""
    rows = service.request(["ab"] * 200)
    async with serving as (stub, handler):
        answer = await stub.ScoreRollouts(rows, timeout=100)
    assert service.totals(answer.rewards).tolist() == [2] * 200
    assert handler.calls_refused == 0


async def test_busy_until_the_deadline(tmp_path, serving):
    """A client that never got in says that the server was busy."""
    slow = service.request(["ab"] * 60, request_id="slow", seconds=0.5)
    client = RewardClient(f"unix:{tmp_path}/s", timeout_s=3)
    rows = clients.rollouts(60, columns={"seconds": [0.0] * 60})
    async with serving as (stub, handler):
        call = stub.ScoreRollouts(slow, timeout=100)
        await service.happened(lambda: handler.info().queue_bytes > 30_000)
        with pytest.raises(Unavailable, match="can't score: the queue must have at most") as error:
            await asyncio.to_thread(client.score, rows)
        call.cancel()
    assert error.value.reason == "QUEUE_FULL"
    client.close()


async def test_a_row_that_fits_in_no_message(tmp_path, serving):
    """The client says at once which part of it is too long and what to do."""
    client = RewardClient(f"unix:{tmp_path}/s", timeout_s=100)
    rows = clients.rollouts(1, columns={"seconds": [0.0], "text": ["x" * (MAX_MESSAGE_BYTES + 1)]})
    async with serving as (_, handler):
        with pytest.raises(ValueError, match=r"in row 0, .* in `columns\['text'\]`. Shorten it"):
            await asyncio.to_thread(client.score, rows)
        assert handler.rows_scored == 0
    client.close()
