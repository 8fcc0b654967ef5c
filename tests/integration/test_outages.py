# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Workers that can't work, callers that go away: who sees it, and what becomes of the rows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from shardward.v1 import reward_pb2_grpc

from reward_server import membership
from reward_server.config import PoolConfig, RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.pool import Pool
from reward_server.router import WorkerRouter
from tests.integration import service
from tests.integration.test_metrics import METRICS, scrape

REWARDS = """
[[reward]]
fn = "{folder}/outage.py:f"
probe = {{ completion = "x" }}
"""
FUNCTION = """
import os, time
from pathlib import Path

if Path(os.environ.get("OUTAGE", "none")).exists():
    raise OSError("stale file handle")

def f(completions, **_):
    count, _, seconds = completions[0].partition(" ")
    if seconds:
        with Path(__file__).with_name("started").open("a") as file:
            file.write("x")
        time.sleep(float(seconds))
    return [float(len(completions[0]))]
"""
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a server and its function."""
    service.write_files(tmp_path / "files", rewards=REWARDS.format(folder=tmp_path / "files"))
    (tmp_path / "files" / "outage.py").write_text(FUNCTION, encoding="utf-8")
    return tmp_path / "files"


@pytest.fixture
def start(folder, tmp_path):
    """Starts commands; a worker can't start children while the file of its name is there."""
    with contextlib.ExitStack() as stack:

        def start(kind, name, *more, address=None):
            environment = ("env", f"OUTAGE={tmp_path}/{name}-out")
            address = address or f"unix:{tmp_path}/{name}"
            flags = (*service.files(folder), "--slots", "1") if kind == "worker" else more
            flags = flags if kind == "worker" else ("--tokenizer", folder, *more)
            running = service.command(kind, "--listen", address, *flags, prefix=environment)
            return stack.enter_context(running)

        yield start


def health(address, name=""):
    """What a process says of its health."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=name)
        return stub.Check(request, timeout=30, wait_for_ready=True).status


def score(address, texts, *, timeout=60, request_id="call"):
    """Scores rows at an address."""
    with grpc.insecure_channel(address) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        request = service.request(texts, request_id=request_id)
        return service.totals(stub.ScoreRollouts(request, timeout=timeout).rewards).tolist()


def check(address):
    """What `reward-server check` says, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "reward_server", "check", address],
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr, done.returncode


def end_children(process):
    """Ends the children of a worker, as a machine without memory would."""
    for child in psutil.Process(process.process.pid).children():
        child.send_signal(signal.SIGTERM)


def test_a_worker_whose_children_cannot_start(start, tmp_path):
    """It gives its rows back at once and gets none; all can see why; then it works again."""
    first, second = start("worker", "a").ready(), start("worker", "b").ready()
    addresses = f"{first.address},{second.address}"
    server = start("serve", "s", "--workers", addresses, *METRICS).ready()
    service.until(lambda: service.info(server.address).workers == 2)
    (tmp_path / "a-out").touch()
    end_children(first)
    begun = time.monotonic()
    assert score(server.address, ["xx"] * 20, request_id="during") == [2.0] * 20
    assert time.monotonic() - begun < 30
    service.until(lambda: "stale file handle" in service.worker_info(first.address).problem)
    assert service.worker_info(first.address).slots == 0
    service.until(lambda: health(first.address) == NOT_SERVING)
    assert (health(first.address, "alive"), health(second.address)) == (SERVING, SERVING)
    service.until(lambda: service.info(server.address).workers == 1)
    text, code = check(first.address)
    assert code == 4
    assert "is NOT_SERVING: reward function 'f' cannot be loaded" in text
    service.until(lambda: "stale" in check(server.address)[0])
    text, code = check(server.address)
    assert code == 0
    assert f"1 of 2 workers usable: {first.address} reward function 'f' cannot be loaded" in text
    found = scrape(server)
    assert (found["reward_workers", "usable"], found["reward_workers", "unusable"]) == (1, 1)
    assert "child failed to start, next try in" in first.log
    (tmp_path / "a-out").unlink()
    service.until(lambda: service.info(server.address).workers == 2, timeout_s=60)
    service.until(lambda: health(first.address) == SERVING)
    assert score(server.address, ["xx"] * 20, request_id="after") == [2.0] * 20
    assert "health status=SERVING" in first.log


def test_idle_workers_that_are_gone_are_seen(start):
    """Nobody need call to find out that a worker is dead or never was there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        never = f"127.0.0.1:{free.getsockname()[1]}"
    worker = start("worker", "w").ready()
    server = start("serve", "s", "--workers", f"{worker.address},{never}").ready()
    service.until(lambda: f"worker can't be used yet address={never}" in server.log)
    text, code = check(server.address)
    assert code == 0
    assert f"1 of 2 workers usable: {never} Connection refused" in text
    worker.end(signal.SIGKILL)
    service.until(lambda: f"worker left address={worker.address}" in server.log)
    service.until(lambda: health(server.address) == NOT_SERVING)
    text, code = check(server.address)
    assert code == 4
    assert "is NOT_SERVING: 0 of 2 workers usable: " in text
    assert server.log.count(f"address={never}") == 1


async def test_an_idle_worker_that_hangs_is_seen(start, folder, monkeypatch, caplog):
    """One that keeps its connection and says nothing is left, too; it is said until one is back."""
    monkeypatch.setattr(membership, "PING_IDLE_S", 0.3)
    monkeypatch.setattr(membership, "PING_TIMEOUT_S", 1.0)
    monkeypatch.setattr(membership, "NOTICE_S", 0.3)
    worker = await asyncio.to_thread(start("worker", "w").ready)
    running = WorkerRouter(worker.address, fingerprint=Tokenizer.load(folder).fingerprint)
    await running.start()
    try:
        assert running.problem == ""
        os.kill(worker.process.pid, signal.SIGSTOP)
        text = f"rows can't be scored: 0 of 1 workers usable: {worker.address} no sign of life"
        await service.happened(lambda: caplog.text.count(text) > 1)
        os.kill(worker.process.pid, signal.SIGCONT)
        await service.happened(lambda: not running.problem)
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)
        await running.close()


async def test_a_server_that_waits_for_its_first_worker_says_so(tmp_path, monkeypatch, caplog):
    """Again and again, with the reason at each address."""
    monkeypatch.setattr(membership, "NOTICE_S", 0.2)
    running = WorkerRouter(f"unix:{tmp_path}/none", fingerprint="f")
    starting = asyncio.create_task(running.start())
    text = f"0 of 1 workers usable: unix:{tmp_path}/none No such file or directory"
    await service.happened(lambda: caplog.text.count(text) > 2)
    starting.cancel()
    await running.close()


async def test_a_caller_that_vanishes(folder, tmp_path):
    """Its call ends after a while, and the rows that wait behind it are scored."""
    pool = Pool(RewardsConfig.load(folder / "rewards.toml"), folder, PoolConfig(slots=1))
    started = folder / "started"
    tokenizer = Tokenizer.load(folder)
    async with service.serving(tmp_path, pool, tokenizer, abandoned_s=0.5) as (stub, handler):
        call = stub.ScoreRollouts(service.request(["x 0.2"] * 400), timeout=600)
        await service.happened(started.exists)
        call.cancel()
        answer = await stub.ScoreRollouts(service.request(["x"] * 2, request_id="next"), timeout=60)
        assert service.totals(answer.rewards).tolist() == [1.0] * 2
        assert handler.outcomes == {"dropped": 400, "ok": 2}
        assert (pool.rows_missing, handler.info().queue_bytes) == (0, 0)
        assert started.stat().st_size < 100


async def test_pieces_of_a_call_that_is_over(start, folder):
    """A worker stops with the rows of a call that has ended at the server."""
    worker = await asyncio.to_thread(start("worker", "w").ready)
    tokenizer = Tokenizer.load(folder)
    running = WorkerRouter(worker.address, fingerprint=tokenizer.fingerprint)
    await running.start()
    try:
        running._size.row_s = 1e-6  # so that a piece has many rows
        rows = service.batch(["x 0.2"] * 400, tokenizer)
        call = asyncio.create_task(running.score(rows, timeout_s=600))
        await service.happened((folder / "started").exists)
        call.cancel()
        await service.happened(lambda: service.worker_info(worker.address).queue_bytes == 0)
    finally:
        await running.close()
    assert "call dropped" in worker.log
    assert (folder / "started").stat().st_size < 100


def test_a_caller_that_comes_back_has_its_rows(start, folder):
    """A broken connection costs nothing: the same id joins, and no row is scored twice."""
    worker = start("worker", "w").ready()
    server = start("serve", "s", "--workers", worker.address).ready()
    with pytest.raises(grpc.RpcError):
        score(server.address, ["x 0.2"] * 20, timeout=1)
    service.until(lambda: service.info(server.address).queue_bytes == 0)
    assert (folder / "started").stat().st_size < 20
    with grpc.insecure_channel(server.address) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        request = service.request(["x 0.2"] * 20, request_id="again")
        lost = stub.ScoreRollouts.future(request, timeout=60)
        (folder / "started").unlink()
        service.until((folder / "started").exists)
        lost.cancel()
    assert score(server.address, ["x 0.2"] * 20, request_id="again") == [5.0] * 20
    assert (folder / "started").stat().st_size == 20
    assert service.info(server.address).calls_joined == 1
