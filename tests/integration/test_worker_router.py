# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the router with real workers, started through the command line."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2

from reward_server import membership, router, status
from reward_server.batch import RowStatus, StartError, WorkersUnavailable
from reward_server.decode import Tokenizer
from reward_server.router import WorkerRouter
from tests.integration import service


@pytest.fixture
def start(files):
    """Starts workers; ends them after the test."""
    with contextlib.ExitStack() as stack:

        def start(*listen, folder=files, slots=1):
            flags = (*service.files(folder), "--slots", slots)
            commands = [service.command("worker", "--listen", where, *flags) for where in listen]
            return [worker.ready() for worker in map(stack.enter_context, commands)]

        yield start


@contextlib.asynccontextmanager
async def routing(spec, tokenizer, *, joined=1):
    """A started router, once so many workers have joined."""
    running = WorkerRouter(spec, fingerprint=tokenizer.fingerprint)
    try:
        await running.start()
        await service.happened(lambda: running.workers >= joined)
        yield running
    finally:
        await running.close()


async def test_rows_of_a_killed_worker_go_to_the_other(tmp_path, start, tokenizer):
    """A worker that is killed in the middle of a call costs no row; each has its own reward."""
    first, second = start(f"unix:{tmp_path}/a", f"unix:{tmp_path}/b")
    texts = ["x" * (1 + row % 7) for row in range(120)]
    texts[50] = "raise"
    batch = service.batch(texts, tokenizer, seconds=0.02)
    spec = f"{first.address},{second.address}"
    async with routing(spec, tokenizer, joined=2) as running:
        assert (running.slots, running.workers) == (2, 2)
        assert [fn.name for fn in running.reward_fns] == ["faulty", "length", "slow_tail"]
        call = asyncio.create_task(running.score(batch, timeout_s=60))
        for worker in (first, second):
            await service.happened(lambda worker=worker: service.worker_rows(worker.address) > 0)
        second.end(signal.SIGKILL)
        assert not call.done()
        scores = await call
        assert running.workers == 1
    failed = np.arange(120) == 50
    assert (scores.statuses == np.where(failed, RowStatus.ERROR, RowStatus.OK)).all()
    assert scores.rewards[:, 1].tolist() == [len(text) for text in texts]
    assert [(error.row, error.reward_fn) for error in scores.errors] == [(50, "faulty")]
    assert scores.score_s.shape == (3,)


async def test_both_workers_are_used_and_no_row_is_scored_twice(tmp_path, start, tokenizer):
    """Rows are shared over TCP and unix sockets alike, and counted once."""
    started = start(f"unix:{tmp_path}/a", "127.0.0.1:0")
    addresses = ",".join(worker.address for worker in started)
    async with routing(addresses, tokenizer, joined=2) as running:
        batches = [service.batch(["ab"] * rows, tokenizer, seconds=0.005) for rows in (60, 1, 40)]
        calls = [running.score(batch, timeout_s=60) for batch in batches]
        for batch, scores in zip(batches, await asyncio.gather(*calls), strict=True):
            assert (scores.statuses == RowStatus.OK).all()
            assert len(scores.statuses) == batch.rows
        empty = await running.score(service.batch([], tokenizer), timeout_s=10)
        assert empty.rewards.shape == (0, 3)
    counts = [service.worker_rows(worker.address) for worker in started]
    assert sum(counts) == 101
    assert min(counts) >= 20


async def test_a_worker_that_comes_back_is_used(tmp_path, start, files, tokenizer):
    """A call waits for workers until its deadline, and only then are they unavailable."""
    (worker,) = start(f"unix:{tmp_path}/a")
    batch = service.batch(["ab"] * 3, tokenizer)
    async with routing(worker.address, tokenizer) as running:
        worker.end(signal.SIGKILL)
        with pytest.raises(WorkersUnavailable, match="3 of 3 rows have no reward: no worker of"):
            await running.score(batch, timeout_s=1)
        call = asyncio.create_task(running.score(batch, timeout_s=60))
        await asyncio.to_thread(start, f"unix:{tmp_path}/a")
        assert (await call).rewards[:, 1].tolist() == [2, 2, 2]


async def test_no_worker_is_unavailable_and_may_be_retried(tmp_path, start, tokenizer):
    """The trainer is told UNAVAILABLE with a delay, and when it asks again it is served."""
    (worker,) = start(f"unix:{tmp_path}/a")
    running = WorkerRouter(worker.address, fingerprint=tokenizer.fingerprint)
    async with service.serving(tmp_path, running, tokenizer) as (stub, _):
        worker.end(signal.SIGKILL)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ScoreRollouts(service.request(["ab"]), timeout=1.2)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert service.reason(error.value) == "WORKERS_UNAVAILABLE"
        retry = service.info_of(error.value, error_details_pb2.RetryInfo())
        assert retry.retry_delay.seconds == status.RETRY_AFTER_S
        await asyncio.to_thread(start, f"unix:{tmp_path}/a")
        answer = await stub.ScoreRollouts(service.request(["ab"]), timeout=30)
    assert service.totals(answer.rewards).tolist() == [2]


async def test_a_slow_row_ends_with_the_deadline(tmp_path, start, tokenizer):
    """What is late is late: no row is given to another worker when the time is over."""
    (worker,) = start(f"unix:{tmp_path}/a")
    async with routing(worker.address, tokenizer) as running:
        with pytest.raises(TimeoutError, match=r"2 of 2 rows have no reward after 1\.0 s"):
            await running.score(service.batch(["ab"] * 2, tokenizer, seconds=5.0), timeout_s=1)
        assert running.workers == 1


async def test_a_worker_with_another_tokenizer_is_refused(tmp_path, start, tokenizer, monkeypatch):
    """The error names both fingerprints."""
    other = service.write_files(tmp_path / "other", end_token="<stop>")
    (worker,) = start(f"unix:{tmp_path}/a", folder=other)
    monkeypatch.setattr(membership, "START_TIMEOUT_S", 1.0)
    with pytest.raises(StartError, match="its tokenizer is") as error:
        async with routing(worker.address, tokenizer):
            pass
    assert Tokenizer.load(other).fingerprint[:12] in str(error.value)
    assert tokenizer.fingerprint[:12] in str(error.value)


async def test_workers_must_agree_on_functions(tmp_path, start, tokenizer, caplog):
    """A worker with other functions gets no rows, not even in place of one that it replaces."""
    rewards = service.REWARDS.replace("weight = 0.5", "weight = 0.25").replace(":faulty", ":judge")
    other = service.write_files(tmp_path / "other", rewards=rewards)
    good, bad = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    (first,) = start(good)
    async with routing(f"{good},{bad}", tokenizer) as running:
        await asyncio.to_thread(start, bad, folder=other)
        await service.happened(lambda: "worker refused" in caplog.text)
        assert running.workers == 1
        assert "judge: added; faulty: missing; length: weight 0.25, others 0.5" in caplog.text
        # Started anew with other functions while nobody looked.
        first.end()
        worker = running._workers[good]
        info = worker.info
        await asyncio.to_thread(start, good, folder=other)
        worker.info = info
        with pytest.raises(WorkersUnavailable):
            await running.score(service.batch(["ab"], tokenizer), timeout_s=2)


async def test_a_worker_that_drains_ends_its_rows(tmp_path, start, tokenizer):
    """SIGTERM in the middle of a call: the worker's rows end there or elsewhere."""
    first, second = start(f"unix:{tmp_path}/a", f"unix:{tmp_path}/b")
    batch = service.batch(["ab"] * 100, tokenizer, seconds=0.02)
    async with routing(f"{first.address},{second.address}", tokenizer, joined=2) as running:
        call = asyncio.create_task(running.score(batch, timeout_s=60))
        await service.happened(lambda: service.worker_rows(second.address) > 0)
        assert await asyncio.to_thread(second.end) == 0
        assert ((await call).statuses == RowStatus.OK).all()
    assert "stopped rows_scored=" in second.log


async def test_names_are_looked_up(start, tokenizer):
    """A DNS name stands for all of its addresses."""
    (worker,) = start("127.0.0.1:0")
    port = worker.address.rpartition(":")[2]
    async with routing(f"dns:///localhost:{port}", tokenizer) as running:
        scores = await running.score(service.batch(["abc"], tokenizer), timeout_s=30)
        assert running._workers[f"127.0.0.1:{port}"].usable
    assert scores.rewards[0, 1] == 3


async def test_waiting_is_logged(tmp_path, start, tokenizer, caplog, monkeypatch):
    """A long call says what is outstanding."""
    monkeypatch.setattr(router, "NOTICE_S", 0.3)
    (worker,) = start(f"unix:{tmp_path}/a")
    async with routing(worker.address, tokenizer) as running:
        await running.score(service.batch(["ab"], tokenizer, seconds=1.2), timeout_s=30)
    assert "rows=1 scored=0 queued=0 workers=1" in caplog.text


@pytest.mark.parametrize(
    "spec",
    ["", "host", "a:1,,b:2", "a:b", "unix:", "dns:///name", "dns:///", "file:", "http://a:1"],
)
def test_addresses_are_checked(spec):
    """An address without a port is refused at once."""
    with pytest.raises(StartError, match="`--workers` must be"):
        WorkerRouter(spec, fingerprint="f")


async def test_a_name_that_does_not_exist_is_no_crash(tokenizer, monkeypatch):
    """It may come to exist; until the time is over, the router looks again."""
    monkeypatch.setattr(membership, "START_TIMEOUT_S", 1.0)
    with pytest.raises(StartError, match=r"no-such-name\.invalid can't be looked up"):
        async with routing("dns:///no-such-name.invalid:1", tokenizer):
            pass
