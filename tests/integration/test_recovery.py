# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers that are killed, stopped and restarted under load: no row is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal

import pytest

from reward_server import membership, router
from reward_server.batch import RowStatus, WorkersUnavailable
from reward_server.router import WorkerRouter
from tests.integration import clients, service
from trainer import RewardClient, Unavailable

REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:steady"
probe = {{ completion = "x" }}
"""


@pytest.fixture
def start(files):
    """Starts a command at an address; all are ended after the test."""
    with contextlib.ExitStack() as stack:

        def start(name, address, *more):
            flags = ("--listen", address, "--tokenizer", files, *more)
            if "--workers" not in more:
                flags += ("--rewards", files / "rewards.toml", "--slots", "1")
            return stack.enter_context(service.command(name, *flags)).ready()

        yield start


@contextlib.asynccontextmanager
async def routing(workers, tokenizer):
    """A started router that all of its workers have joined."""
    running = WorkerRouter(workers, fingerprint=tokenizer.fingerprint)
    try:
        await running.start()
        await service.happened(lambda: running.workers == len(workers.split(",")))
        yield running
    finally:
        await running.close()


def batch(rows, tokenizer):
    """The same rows, as a server hands them on."""
    texts = ["x" * (1 + row % 7) for row in range(rows)]
    return service.batch(texts, tokenizer)


async def test_workers_killed_again_and_again(tmp_path, start, tokenizer):
    """Every row has its reward once, whichever worker is killed, and the books are right after."""
    addresses = [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
    workers = [start("worker", address) for address in addresses]
    async with routing(",".join(addresses), tokenizer) as running:
        call = asyncio.create_task(running.score(batch(600, tokenizer), timeout_s=200))
        for kill in range(4):
            at = kill % 2
            await service.happened(lambda at=at: service.worker_rows(addresses[at]) > 0)
            assert not call.done()
            workers[at].end(signal.SIGKILL)
            workers[at] = await asyncio.to_thread(start, "worker", addresses[at])
        scores = await call
        await service.happened(lambda: running.workers == 2)
        assert (running.slots, [len(w.pieces) for w in running._workers]) == (2, [0, 0])
        again = await running.score(batch(8, tokenizer), timeout_s=60)
    assert (scores.statuses == RowStatus.OK).all()
    assert scores.rewards[:, 0].tolist() == clients.lengths(600)
    assert again.rewards[:, 0].tolist() == clients.lengths(8)


async def test_no_worker_left(tmp_path, start, tokenizer, monkeypatch, caplog):
    """The call says what is missing, again and again, and ends UNAVAILABLE at its deadline."""
    monkeypatch.setattr(router, "NOTICE_S", 0.3)
    worker = start("worker", f"unix:{tmp_path}/a")
    async with routing(worker.address, tokenizer) as running:
        worker.end(signal.SIGKILL)
        with pytest.raises(WorkersUnavailable, match=r"no worker of unix:.*/a can be reached"):
            await running.score(batch(3, tokenizer), timeout_s=3)
    notices = [line for line in caplog.messages if "call waits" in line]
    assert len(notices) >= 2
    assert "rows=3 scored=0 queued=3 workers=0 unusable={'unix:" in notices[-1]


async def test_a_stopped_worker_loses_its_pieces(tmp_path, start, tokenizer, monkeypatch, caplog):
    """A worker that hangs as a whole costs no row; once it goes on, its late answers do no harm."""
    monkeypatch.setattr(membership, "PING_EVERY_S", 0.3)
    monkeypatch.setattr(membership, "PING_TIMEOUT_S", 2.0)
    addresses = [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
    first, second = (start("worker", address) for address in addresses)
    async with routing(",".join(addresses), tokenizer) as running:
        call = asyncio.create_task(running.score(batch(200, tokenizer), timeout_s=200))
        await service.happened(lambda: service.worker_rows(second.address) > 0)
        os.kill(second.process.pid, signal.SIGSTOP)
        try:
            scores = await call
            assert running.workers == 1
            assert "worker left" in caplog.text
            assert "no sign of life" in caplog.text
        finally:
            os.kill(second.process.pid, signal.SIGCONT)
        await service.happened(lambda: running.workers == 2)
        assert [len(worker.pieces) for worker in running._workers] == [0, 0]
        again = await running.score(batch(40, tokenizer), timeout_s=60)
    assert (scores.statuses == RowStatus.OK).all()
    assert scores.rewards[:, 0].tolist() == clients.lengths(200)
    assert again.rewards[:, 0].tolist() == clients.lengths(40)
    assert first.process.poll() is None


async def test_a_worker_whose_queue_is_full(tmp_path, start, tokenizer):
    """Pieces that a worker refuses for now are given out again, and it stays a worker."""
    worker = start("worker", f"unix:{tmp_path}/a", "--max-queue-mb", "1")
    rows = service.batch(["x" * 200_000] * 4, tokenizer)
    async with (
        routing(worker.address, tokenizer) as first,
        routing(worker.address, tokenizer) as second,
    ):
        calls = [running.score(rows, timeout_s=200) for running in (first, second)]
        for scores in await asyncio.gather(*calls):
            assert scores.rewards[:, 0].tolist() == [200_000] * 4
        assert (first.workers, second.workers) == (1, 1)
    assert service.worker_info(worker.address).calls_refused > 0


def test_a_server_killed_in_mid_call(tmp_path, start):
    """The client connects to the next server on the path and gets all rows under the same id."""
    path = f"unix:{tmp_path}/s"
    server = start("serve", path)
    client = RewardClient(path, timeout_s=200)
    client.connect()
    handle = client.submit(clients.rollouts(200))
    service.until(lambda: service.info(path).queue_bytes > 0)
    server.end(signal.SIGKILL)
    again = start("serve", path)
    assert handle.result().totals.tolist() == clients.lengths(200)
    client.close()
    again.end()
    assert "stopped rows_scored=200" in again.log


def test_a_client_is_told_that_workers_are_gone(tmp_path, start):
    """After its deadline the trainer knows what was missing."""
    worker = start("worker", f"unix:{tmp_path}/a")
    path = f"unix:{tmp_path}/s"
    start("serve", path, "--workers", worker.address)
    worker.end(signal.SIGKILL)
    client = RewardClient(path, timeout_s=3)
    client.connect()
    with pytest.raises(Unavailable, match=r"3 of 3 rows have no reward: no worker of") as error:
        client.score(clients.rollouts(3))
    assert error.value.reason == "WORKERS_UNAVAILABLE"
    client.close()


def test_rolling_restart(tmp_path, start):
    """Workers drained and started anew one by one, under load, fail no row of any client."""
    addresses = [f"unix:{tmp_path}/{name}" for name in "abc"]
    workers = [start("worker", address, "--drain-s", "60") for address in addresses]
    path = f"unix:{tmp_path}/s"
    server = start("serve", path, "--workers", ",".join(addresses))
    service.until(lambda: service.info(path).workers == 3)
    done = False

    def train(number):
        client = RewardClient(path, timeout_s=200)
        client.connect()
        steps = 0
        while not done or not steps:
            first = 1000 * number
            rewards = client.score(clients.rollouts(40, first=first))
            assert rewards.totals.tolist() == clients.lengths(40, first=first)
            steps += 1
        client.close()
        return steps

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        trainers = [threads.submit(train, number) for number in range(4)]
        try:
            for at, address in enumerate(addresses):
                service.until(lambda address=address: service.worker_rows(address) > 0)
                assert workers[at].end() == 0
                start("worker", address, "--drain-s", "60")
                service.until(lambda: service.info(path).workers == 3)
        finally:
            done = True
        steps = [trainer.result(timeout=200) for trainer in trainers]
    assert min(steps) >= 1
    assert server.end() == 0
    assert f"stopped rows_scored={40 * sum(steps)}" in server.log
