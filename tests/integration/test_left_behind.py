# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What reward functions leave behind: processes, files, memory, output, descriptors."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile

import grpc
import numpy as np
import psutil
import pytest
from shardward.v1 import reward_pb2_grpc

from reward_server import processes
from reward_server.batch import RowStatus
from tests.integration import pools, service

OK, ERROR, INVALID, TIMEOUT, CRASHED, OOM = RowStatus


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Path of a tokenizer of single characters."""
    return pools.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def alive(folder):
    """Processes whose ids are names of files in a folder, and that are still there."""
    found = []
    for path in folder.iterdir():
        try:
            process = psutil.Process(int(path.name))
            if process.status() != psutil.STATUS_ZOMBIE and process.name() == "sleep":
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("abort", CRASHED),
        ("hardexit", CRASHED),
        ("kill", CRASHED),
        ("segv", CRASHED),
        ("sleep", TIMEOUT),
        ("stop", TIMEOUT),
    ],
)
async def test_processes_end_with_the_child(tokenizer, tmp_path, fault, status):
    """However a child ends: sessions of their own, cleared environments, daemons, all are gone."""
    rows = pools.batch(["a", fault, "b"], columns={"folder": ["", str(tmp_path), ""]})
    async with pools.running(tokenizer, pools.fn("spawn_and", timeout_s=1)) as pool:
        scores = await pool.score(rows, timeout_s=60)
        assert len(list(tmp_path.iterdir())) == 4
        assert alive(tmp_path) == []
    assert scores.statuses.tolist() == [OK, status, OK]


async def test_a_supervisor_that_is_stopped(tokenizer, tmp_path):
    """Even then a hung row ends, and the child with all of its processes."""
    rows = pools.batch(["sleep", "b"], columns={"folder": [str(tmp_path), ""]})
    async with pools.running(tokenizer, pools.fn("spawn_and", timeout_s=1), slots=1) as pool:
        call = asyncio.create_task(pool.score(rows, timeout_s=60))
        await service.happened(lambda: len(list(tmp_path.iterdir())) == 4)
        (child,) = pool._busy
        os.kill(child.pid, signal.SIGSTOP)
        scores = await call
        assert alive(tmp_path) == []
    assert scores.statuses.tolist() == [TIMEOUT, OK]


async def test_processes_of_good_rows_end_with_the_pool(tokenizer, tmp_path):
    """A function may keep processes; they are gone once the pool is closed."""
    rows = pools.batch(["a"], columns={"folder": [str(tmp_path)]})
    async with pools.running(tokenizer, pools.fn("spawn_and"), slots=1) as pool:
        scores = await pool.score(rows, timeout_s=60)
        # The daemon may still be on its way to `sleep`.
        await service.happened(lambda: len(alive(tmp_path)) == 4)
    assert scores.statuses.tolist() == [OK]
    assert alive(tmp_path) == []


async def test_a_killed_server_leaves_nothing(tmp_path, monkeypatch):
    """Neither processes nor temporary files outlive a server that is killed in mid-call."""
    rewards = f"""
[[reward]]
fn = "{pools.FUNCTIONS}:spawn_and"
timeout_s = 100
probe = {{ columns = {{ folder = "" }} }}
"""
    files = service.write_files(tmp_path / "files", rewards=rewards)
    folder, temporary = tmp_path / "pids", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    path = f"unix:{tmp_path}/s"
    flags = ("--listen", path, *service.files(files), "--slots", "1")
    request = service.request(["sleep"])
    request.rollouts.columns[0].name = "folder"
    request.rollouts.columns[0].string_values.values.append(str(folder))
    with service.command("serve", *flags) as server:
        server.ready()
        with grpc.insecure_channel(path) as channel:
            call = reward_pb2_grpc.RewardServiceStub(channel).ScoreRollouts.future(
                request, timeout=60
            )
            service.until(lambda: len(list(folder.iterdir())) == 4)
            assert len(list(temporary.iterdir())) == 2
            server.end(signal.SIGKILL)
            assert call.exception().code() == grpc.StatusCode.UNAVAILABLE
    service.until(lambda: not alive(folder) and not list(temporary.iterdir()))


async def test_temporary_files_go_with_the_child(tokenizer, tmp_path, monkeypatch):
    """Each child has a folder of its own for them, which is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with pools.running(tokenizer, pools.fn("faulty"), slots=1) as pool:
        # Both: the child that was idle last gets the next row, so one child gets the two.
        await service.happened(lambda: pool.children["idle"] == 2)
        assert len(list(tmp_path.iterdir())) == 2
        scores = await pool.score(pools.batch(["litter"]), timeout_s=60)
        (folder,) = (folder for folder in tmp_path.iterdir() if list(folder.iterdir()))
        assert len(list(folder.iterdir())) == 6
        again = await pool.score(pools.batch(["hardexit"]), timeout_s=60)
        await service.happened(lambda: not folder.exists() or not list(folder.iterdir()))
    assert (scores.statuses.tolist(), again.statuses.tolist()) == ([OK], [CRASHED])
    assert list(tmp_path.iterdir()) == []


async def test_closed_descriptors_cost_no_other_row(tokenizer):
    """A child that lost its socket is replaced; the row that can't be reported is sent again."""
    texts = ["a", "closefds", "raise", "b", "closefds"]
    async with pools.running(tokenizer, pools.fn("faulty"), slots=1) as pool:
        scores = await pool.score(pools.batch(texts), timeout_s=60)
    assert scores.statuses.tolist() == [OK, OK, ERROR, OK, OK]


@pytest.mark.parametrize("function", ["faulty", "judge"])
async def test_a_function_that_returns_twice(tokenizer, function):
    """A copy of the child made by fork scores nothing and says nothing."""
    texts = ["a", "fork", "raise", "b", "fork"] * 4
    async with pools.running(tokenizer, pools.fn(function), slots=1) as pool:
        scores = await pool.score(pools.batch(texts), timeout_s=60)
    assert scores.statuses.tolist() == [OK, OK, ERROR, OK, OK] * 4
    assert len(scores.errors) == 4


async def test_memory_that_is_only_asked_for(tokenizer):
    """A function that asks for far too much gets an error at once and its child lives on."""
    limits = {"slots": 1, "max_child_rss_bytes": 400 * 2**20}
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=60), **limits) as pool:
        (child,) = pool._children._idle[-1:]
        scores = await pool.score(pools.batch(["a", "greedy", "b"]), timeout_s=60)
        assert child in pool._children
    assert scores.statuses.tolist() == [OK, OOM, OK]
    assert "MemoryError" in scores.errors[0].message


async def test_memory_of_descendants_counts(tokenizer):
    """A function can't go around the limit with processes of its own."""
    limits = {"slots": 1, "max_child_rss_bytes": 400 * 2**20}
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=60), **limits) as pool:
        scores = await pool.score(pools.batch(["a", "helper", "b"]), timeout_s=60)
    assert scores.statuses.tolist() == [OK, OOM, OK]
    assert "max_child_rss_bytes" in scores.errors[0].message


async def test_memory_that_is_shared_counts_once(tokenizer):
    """Processes that a function forks do not take their parent's memory again."""
    limits = {"slots": 1, "max_child_rss_bytes": 600 * 2**20}
    async with pools.running(tokenizer, pools.fn("crowd", timeout_s=60), **limits) as pool:
        scores = await pool.score(pools.batch(["a", "b"]), timeout_s=60)
    assert scores.statuses.tolist() == [OK, OK]


def test_memory_of_a_process_that_ended_is_none():
    """What it was a moment ago is not added to the larger parts of those that shared with it."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        assert processes._share_bytes(process.pid, 2**40) < 2**40
        process.kill()
    assert processes._share_bytes(process.pid, 2**40) == 0


async def test_reports_outlive_the_child(tokenizer):
    """Numbers reported by rows that were finished before their child died are kept."""
    texts = ["a", "bb", "ccc", "kill", "dd", "e", "ffff", "gg"]
    async with pools.running(tokenizer, pools.fn("logged"), slots=1) as pool:
        scores = await pool.score(pools.batch(texts), timeout_s=60)
    assert scores.statuses.tolist() == [OK, OK, OK, CRASHED, OK, OK, OK, OK]
    np.testing.assert_array_equal(scores.extra_columns["characters"], [1, 2, 3, np.nan, 2, 1, 4, 2])


async def test_extra_columns_are_bounded(tokenizer):
    """Names that come from the data do not fill the memory."""
    texts = [chr(ord("a") + number) for number in range(10)]
    async with pools.running(tokenizer, pools.fn("names"), slots=1) as pool:
        scores = await pool.score(pools.batch(texts), timeout_s=60)
    assert scores.statuses.tolist() == [OK] * 10
    assert len(scores.extra_columns) == 256


def test_error_output_is_bounded(tmp_path):
    """A function that writes megabytes is heard for a while, and the server says so once."""
    files = service.write_files(tmp_path / "files")
    path = f"unix:{tmp_path}/s"
    flags = ("--listen", path, *service.files(files), "--slots", "1")
    with service.command("serve", *flags) as server:
        server.ready()
        with grpc.insecure_channel(path) as channel:
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            answer = stub.ScoreRollouts(service.request(["a", "flood", "flood", "b"]), timeout=60)
        assert list(answer.rewards.statuses) == [OK] * 4
        assert server.end() == 0
    assert "flood flood" in server.log
    assert len(server.log) < 200_000
    assert server.log.count("rest dropped") == 1
