# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus gets from servers and workers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import signal
import subprocess
import sys

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from shardward.v1 import reward_pb2_grpc

from tests.integration import service

METRICS = ("--metrics-listen", "127.0.0.1:0")
OUTCOMES = ("ok", "error", "invalid", "timeout", "crashed", "oom")
LOST = ("expired", "unavailable", "refused", "dropped")
STATES = ("idle", "busy", "starting")


def scrape(process):
    """Metrics of a process by name and labels, as Prometheus would read them."""
    (line,) = (line for line in process.ready().lines if "metrics listen=" in line)
    connection = http.client.HTTPConnection(line.rpartition("listen=")[2].strip(), timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def score(address, request, *, timeout=60):
    """Scores rows at an address."""
    with grpc.insecure_channel(address) as channel:
        return reward_pb2_grpc.RewardServiceStub(channel).ScoreRollouts(request, timeout=timeout)


def test_rows_are_counted_by_outcome(tmp_path, files):
    """Every outcome is there from the start; rows show where they ended; gauges are back at 0."""
    path = f"unix:{tmp_path}/s"
    with service.command(
        *("serve", "--listen", path, "--slots", 2, *service.files(files)), *METRICS
    ) as server:
        found = scrape(server)
        assert sum(found["reward_children", state] for state in STATES) == 3
        assert found == {
            ("reward_queue_rows",): 0,
            ("reward_inflight_rows",): 0,
            ("reward_slots",): 2,
            **{("reward_workers", state): 0 for state in ("usable", "unusable")},
            **{("reward_children", state): found["reward_children", state] for state in STATES},
            **{("reward_rows_total", outcome): 0 for outcome in (*OUTCOMES, *LOST)},
        }
        score(path, service.request(["a", "b", "raise", "sleep", "kill"]))
        found = scrape(server)
        counts = {outcome: found["reward_rows_total", outcome] for outcome in OUTCOMES}
        assert counts == {
            "ok": 2,
            "error": 1,
            "timeout": 1,
            "crashed": 1,
            "invalid": 0,
            "oom": 0,
        }
        assert (found["reward_queue_rows",], found["reward_inflight_rows",]) == (0, 0)
        for seconds, code in ((5.0, "DEADLINE_EXCEEDED"), (None, "INVALID_ARGUMENT")):
            request = service.request(["a"] * 3, seconds=seconds or 0, request_id=code)
            request.mode = 0 if seconds else 99
            with pytest.raises(grpc.RpcError, match=code):
                score(path, request, timeout=1)
        found = scrape(server)
        lost = {outcome: found["reward_rows_total", outcome] for outcome in LOST}
        assert lost == {"expired": 3, "unavailable": 0, "refused": 3, "dropped": 0}
        assert server.end() == 0


def test_a_queue_shows_on_the_server(tmp_path, files):
    """Rows that no worker has are the server's queue; the autoscaler of workers looks at it."""
    worker_path, path = f"unix:{tmp_path}/w", f"unix:{tmp_path}/s"
    rows = 40
    with (
        service.command(
            *("worker", "--listen", worker_path, "--slots", 1, *service.files(files)), *METRICS
        ) as worker,
        service.command(
            *("serve", "--listen", path, "--tokenizer", files, "--workers", worker_path), *METRICS
        ) as server,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        server.ready()
        answer = threads.submit(score, path, service.request(["a"] * rows, seconds=0.1))
        service.until(lambda: scrape(server)["reward_queue_rows",] > 0)
        found, of_worker = scrape(server), scrape(worker)
        assert found["reward_slots",] == of_worker["reward_slots",] == 1
        assert 0 < found["reward_queue_rows",] < found["reward_inflight_rows",] <= rows
        assert of_worker["reward_inflight_rows",] < rows
        assert len(answer.result(60).rewards.totals) == 4 * rows
        for process in (server, worker):
            assert scrape(process)["reward_rows_total", "ok"] == rows
            assert scrape(process)["reward_inflight_rows",] == 0


def test_a_stopped_server_can_be_scraped_until_it_ends(tmp_path, files):
    """While it drains its port answers; then the process ends at once, with nothing left."""
    path = f"unix:{tmp_path}/s"
    with (
        service.command(
            *("serve", "--listen", path, "--slots", 1, *service.files(files)), *METRICS
        ) as server,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        server.ready()
        answer = threads.submit(score, path, service.request(["a"] * 10, seconds=0.2))
        service.until(lambda: scrape(server)["reward_inflight_rows",] > 0)
        server.process.send_signal(signal.SIGTERM)
        service.until(lambda: "draining" in server.log)
        assert scrape(server)["reward_inflight_rows",] > 0
        assert len(answer.result(60).rewards.totals) == 40
        assert server.wait() == 0


def test_without_the_extra_it_says_so(tmp_path, files):
    """The package is named, and how to get it."""
    arguments = [
        *("serve", "--listen", f"unix:{tmp_path}/s", "--slots", 1, *service.files(files), *METRICS)
    ]
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from reward_server import cli; cli.main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "`--metrics-listen` needs the package prometheus_client: it is not" in done.stderr
    assert "Traceback" not in done.stderr
