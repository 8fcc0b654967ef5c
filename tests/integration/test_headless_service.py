# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Workers behind a DNS name are scaled under load: no row is lost, nobody is restarted."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import time

import pytest

from tests.integration import clients, service
from tests.integration.name_server import NAME, name_server
from trainer import RewardClient

pytestmark = pytest.mark.deploy
REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:steady"
probe = {{ completion = "x" }}
"""
HOSTS = [f"127.0.0.{number}" for number in range(2, 7)]


def free_port():
    """A port that is free on all of the hosts, most likely."""
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        return probe.getsockname()[1]


class Load:
    """Trainers that send one batch after the other until told to stop."""

    def __init__(self, endpoint, count):
        """Starts them."""
        self._stopped = False
        self._pool = concurrent.futures.ThreadPoolExecutor(count)
        self._trainers = [self._pool.submit(self._train, endpoint, n) for n in range(count)]

    def _train(self, endpoint, number):
        client = RewardClient(endpoint, timeout_s=100)
        client.process_index = number
        client.connect()
        rows = 0
        try:
            while not self._stopped:
                first = 1_000_000 * number + rows
                rewards = client.score(clients.rollouts(60, first=first))
                assert rewards.totals.tolist() == clients.lengths(60, first=first)
                rows += 60
        finally:
            client.close()
        return rows

    def stop(self):
        """Ends them after their batch; returns the rows of each, or raises what went wrong."""
        self._stopped = True
        try:
            return [trainer.result(timeout=200) for trainer in self._trainers]
        finally:
            self._pool.shutdown()


def gets_rows(address):
    """Waits until a worker gets rows, with more of them from now on; returns the seconds."""
    start, before = time.monotonic(), service.worker_rows(address)
    service.until(lambda: service.worker_rows(address) > before)
    return time.monotonic() - start


def test_workers_are_scaled_from_2_to_5_to_1(tmp_path):
    """New workers get rows within 10 s; those that leave end their rows and exit."""
    files = service.write_files(tmp_path / "files", rewards=REWARDS)
    port = free_port()

    with name_server(tmp_path) as names, contextlib.ExitStack() as stack:

        def start(hosts):
            flags = (*service.files(files), "--slots", 1, "--drain-s", 60)
            started = [
                stack.enter_context(service.command("worker", "--listen", f"{host}:{port}", *flags))
                for host in hosts
            ]
            return [worker.ready() for worker in started]

        workers = start(HOSTS[:2])
        names.list(HOSTS[:2])
        flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", files)
        serve = ("serve", *flags, "--workers", f"dns:///{NAME}:{port}")
        server = stack.enter_context(service.command(*serve, prefix=names.prefix)).ready()
        service.until(lambda: service.info(server.address).workers == 2)
        load = Load(server.address, 4)
        try:
            for worker in workers:
                gets_rows(worker.address)
            more = start(HOSTS[2:])
            names.list(HOSTS)
            waits = [gets_rows(worker.address) for worker in more]
            assert sum(waits) < 10
            service.until(lambda: service.info(server.address).workers == 5)
            # As when pods are deleted: the name changes and the processes are told at once.
            leaving = [*workers, *more[:-1]]
            names.list(HOSTS[-1:])
            for worker in leaving:
                worker.process.terminate()
            assert [worker.wait() for worker in leaving] == [0] * 4
            service.until(lambda: service.info(server.address).workers == 1)
            gets_rows(more[-1].address)
        finally:
            rows = load.stop()
        assert min(rows) > 0
        assert service.info(server.address).rows_scored == sum(rows)
        assert server.process.poll() is None


def test_a_name_server_that_is_down_changes_nothing(tmp_path):
    """Workers that are known stay, and are found again when it is back."""
    files = service.write_files(tmp_path / "files", rewards=REWARDS)
    port = free_port()
    with name_server(tmp_path) as names, contextlib.ExitStack() as stack:
        flags = ("--listen", f"{HOSTS[0]}:{port}", *service.files(files), "--slots", 1)
        stack.enter_context(service.command("worker", *flags)).ready()
        names.list(HOSTS[:1])
        flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", files)
        serve = ("serve", *flags, "--workers", f"dns:///{NAME}:{port}")
        server = stack.enter_context(service.command(*serve, prefix=names.prefix)).ready()
        names.end()
        service.until(lambda: "workers stay as they are, 1" in server.log)
        client = RewardClient(server.address, timeout_s=100)
        client.connect()
        assert client.score(clients.rollouts(5)).totals.tolist() == clients.lengths(5)
        client.close()
