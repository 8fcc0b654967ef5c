# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward server with HAProxy between it and its workers, with the configuration that we ship."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess

import pytest

from bench import fleet
from tests.integration import clients, service
from trainer import RewardClient

pytestmark = pytest.mark.deploy
REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:steady"
probe = {{ completion = "x" }}
"""


@pytest.fixture(scope="module")
def program():
    """HAProxy, or a skipped test."""
    found = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if found is None:
        pytest.skip("HAProxy is missing: apt-get install -y haproxy, or make test-deploy")
    return found


@pytest.fixture
def workers(files):
    """Three workers with two slots each."""
    with contextlib.ExitStack() as stack:
        flags = ("--listen", "127.0.0.1:0", *service.files(files), "--slots", 2, "--drain-s", 60)
        started = [stack.enter_context(service.command("worker", *flags)) for _ in range(3)]
        yield [worker.ready() for worker in started]


@pytest.fixture
def proxy(tmp_path, program, workers):
    """Address of HAProxy before the workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    file = tmp_path / "haproxy.cfg"
    addresses = [worker.address for worker in workers]
    file.write_text(fleet.haproxy_config(addresses, listen, slots=2))
    process = subprocess.Popen([program, "-db", "-f", str(file)])
    yield listen
    process.kill()
    process.wait(30)


@pytest.fixture
def server(tmp_path, files, proxy):
    """A reward server that knows the proxy only."""
    flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", files)
    with service.command("serve", *flags, "--workers", proxy, "--worker-slots", 6) as running:
        yield running.ready()


@pytest.fixture
def client(server):
    """A client of that server."""
    client = RewardClient(server.address, timeout_s=200)
    client.connect()
    yield client
    client.close()


def test_the_configuration_is_valid(program):
    """HAProxy takes the file as it is shipped, without a warning."""
    done = subprocess.run(
        [program, "-c", "-f", str(fleet.HAPROXY)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_rows_are_shared(client, server, workers):
    """The server has the slots it was told, and all workers get their part."""
    assert service.info(server.address).slots == 6
    assert client.score(clients.rollouts(240)).totals.tolist() == clients.lengths(240)
    counts = [service.worker_rows(worker.address) for worker in workers]
    assert sum(counts) == 240
    assert min(counts) > 40


def test_a_killed_worker_loses_nothing(client, workers):
    """The rows that it had go to another one."""
    handle = client.submit(clients.rollouts(400))
    service.until(lambda: service.worker_rows(workers[0].address) > 10)
    workers[0].end(signal.SIGKILL)
    assert handle.result().totals.tolist() == clients.lengths(400)


def test_a_worker_that_drains_loses_nothing(client, server, workers):
    """It ends what it has, and the health check keeps new rows away: no worker is lost."""
    handle = client.submit(clients.rollouts(400))
    service.until(lambda: service.worker_rows(workers[0].address) > 10)
    assert workers[0].end() == 0
    assert handle.result().totals.tolist() == clients.lengths(400)


def test_long_rows_are_no_silence(tmp_path, program, files):
    """A sign of life passes the proxy although all slots are taken."""
    rewards = REWARDS.replace(":steady", ":slow_tail").replace(
        'completion = "x"', 'completion = "x", columns = { seconds = 0 }'
    )
    rewards += "timeout_s = 60\n"
    files = service.write_files(tmp_path / "slow", rewards=rewards)
    with contextlib.ExitStack() as stack:
        flags = ("--listen", "127.0.0.1:0", *service.files(files), "--slots", 1)
        worker = stack.enter_context(service.command("worker", *flags)).ready()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{probe.getsockname()[1]}"
        file = tmp_path / "haproxy.cfg"
        file.write_text(fleet.haproxy_config([worker.address], listen, slots=1))
        process = subprocess.Popen([program, "-db", "-f", str(file)])
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", files)
        serve = service.command("serve", *flags, "--workers", listen, "--worker-slots", 1)
        server = stack.enter_context(serve).ready()
        client = RewardClient(server.address, timeout_s=100)
        client.connect()
        stack.callback(client.close)
        # Longer than a server waits before it asks, and for the answer to that.
        rows = clients.rollouts(1, columns={"seconds": [13.0]})
        assert client.score(rows).totals.tolist() == [1.0]
        assert "worker left" not in server.log
        assert service.worker_rows(worker.address) == 1
