# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Several reward servers on the same workers: equal loads get equal shares, none is starved."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest

from reward_server.config import PoolConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.router import WorkerRouter
from tests.integration import service

REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:slow_tail"
probe = {{ completion = "x", columns = {{ seconds = 0 }} }}
"""
ROW_S = 0.02


@pytest.fixture
def workers(tmp_path, files):
    """Addresses of two workers with two slots each."""
    with contextlib.ExitStack() as stack:
        flags = (*service.files(files), "--slots", 2)
        started = [
            stack.enter_context(
                service.command("worker", "--listen", f"unix:{tmp_path}/{name}", *flags)
            )
            for name in "ab"
        ]
        yield ",".join(worker.ready().address for worker in started)


@contextlib.asynccontextmanager
async def routers(workers, tokenizer, count):
    """So many routers on the same workers."""
    running = [WorkerRouter(workers, fingerprint=tokenizer.fingerprint) for _ in range(count)]
    try:
        for router in running:
            await router.start()
        await service.happened(lambda: all(router.workers == 2 for router in running))
        yield running
    finally:
        for router in running:
            await router.close()


def rows(count, tokenizer, *, caller="", seconds=ROW_S):
    """Rows of 20 ms."""
    made = service.batch(["x"] * count, tokenizer, seconds=seconds)
    return dataclasses.replace(made, caller=caller)


async def begun(router):
    """The call of a router, once some of its rows have been scored."""
    await service.happened(lambda: any(call.scored for call in router._calls))
    return next(iter(router._calls))


async def test_equal_loads_get_equal_shares(workers, tokenizer):
    """When the first of four servers has all of its rows, the others have most of theirs."""
    count = 250
    async with routers(workers, tokenizer, 4) as running:
        calls = [
            asyncio.create_task(router.score(rows(count, tokenizer), timeout_s=250))
            for router in running
        ]
        parts = [await begun(router) for router in running]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        shares = [part.scored for part in parts]
        await asyncio.gather(*calls)
    assert max(shares) == count
    assert min(shares) > count / 2


async def test_a_small_batch_does_not_wait_for_a_huge_one(workers, tokenizer):
    """It is done long before, although the huge one came first and fills all queues."""
    async with routers(workers, tokenizer, 2) as (huge, small):
        call = asyncio.create_task(huge.score(rows(2000, tokenizer), timeout_s=250))
        part = await begun(huge)
        before = part.scored
        await small.score(rows(20, tokenizer), timeout_s=100)
        between = part.scored - before
        assert not call.done()
        call.cancel()
    # An even share would be 20.
    assert between < 200


async def test_processes_of_one_server_take_turns(workers, tokenizer):
    """The same within a server: callers are training processes there."""
    async with routers(workers, tokenizer, 1) as (router,):
        call = asyncio.create_task(router.score(rows(2000, tokenizer, caller="0"), timeout_s=250))
        part = await begun(router)
        before = part.scored
        await router.score(rows(20, tokenizer, caller="1"), timeout_s=100)
        assert part.scored - before < 200
        call.cancel()


async def test_callers_of_a_pool_take_turns(files, tokenizer):
    """A worker's children do not end one caller's rows before they begin with another's."""
    pool = Pool(RewardsConfig.load(files / "rewards.toml"), files, PoolConfig(slots=1))
    await pool.start()
    try:
        huge = [
            asyncio.create_task(pool.score(rows(100, tokenizer, caller="huge"), timeout_s=250))
            for _ in range(10)
        ]
        await service.happened(lambda: pool.rows_missing < 1000)
        await pool.score(rows(5, tokenizer, caller="small"), timeout_s=100)
        assert pool.rows_missing > 800
        for call in huge:
            call.cancel()
    finally:
        await pool.close()


async def test_a_server_alone_uses_all_slots_again(workers, tokenizer):
    """What it gave up while another was there comes back."""
    async with routers(workers, tokenizer, 2) as (first, second):
        calls = [router.score(rows(200, tokenizer), timeout_s=250) for router in (first, second)]
        await asyncio.gather(*calls)
        await first.score(rows(200, tokenizer), timeout_s=250)
        assert [worker.window for worker in first._workers] == [2, 2]
