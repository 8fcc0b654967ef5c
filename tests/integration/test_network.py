# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of the network between a trainer and a reward server on another node."""

from __future__ import annotations

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration import netns, service
from trainer import DeadlineExceeded, RewardClient, Unavailable

ROWS = ["a", "bc", "", "def"]
TOTALS = [1.0, 2.0, 0.0, 3.0]


@pytest.fixture(scope="module")
def node():
    """A node across a network of its own."""
    with netns.node() as made:
        yield made


@pytest.fixture(scope="module")
def server(node, tmp_path_factory):
    """A reward server there."""
    folder = service.write_files(tmp_path_factory.mktemp("server"), rewards=service.MARKED)
    flags = (*service.files(folder), "--slots", 2, "--insecure-bind")
    with service.command(
        "serve", "--listen", f"{node.host}:0", *flags, prefix=node.prefix
    ) as running:
        yield running.ready()


@pytest.fixture
def client(node, server):
    """A connected client; the network is whole before and after."""
    with contextlib.closing(RewardClient(server.address, timeout_s=120)) as made:
        made.connect()
        try:
            yield made
        finally:
            node.mend()


@contextlib.contextmanager
def standing_still(server):
    """Stops the process of a server for the block."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def short(server, **settings):
    """Another client of the server, with short waits."""
    return contextlib.closing(RewardClient(server.address, **settings))


def test_half_open_connection_is_found_and_rows_are_scored_once(
    client, node, server, tmp_path, caplog
):
    """A path that dies in mid-call is noticed before the deadline; mended, the call goes on."""
    before = client.connect().rows_scored
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(
            client.score, service.local_rollouts(ROWS, seconds=1, folder=tmp_path)
        )
        service.until(lambda: list(tmp_path.iterdir()))
        node.cut()
        service.until(lambda: "retrying after UNAVAILABLE" in caplog.text, timeout_s=60)
        node.mend()
        assert waiting.result(60).totals.tolist() == TOTALS
    assert len(list(tmp_path.iterdir())) == len(ROWS)
    assert "failure=the connection went dead" in caplog.text
    assert client.connect().rows_scored - before == len(ROWS)


def test_black_hole_at_connect(node, server):
    """A path that swallows every packet ends after connect_timeout_s; mended, it connects."""
    with short(server, connect_timeout_s=2) as new:
        node.cut()
        with pytest.raises(
            Unavailable, match=rf"{server.address} can't be reached: no answer .*--re"
        ):
            new.connect()
        node.mend()
    with short(server) as new:
        assert new.connect().slots == 2


@pytest.mark.parametrize("fault", ["cut", "unplug"])
def test_dead_path_ends_at_the_deadline(fault, node, server, client):
    """Packets dropped, or the interface of the other side down: a call ends when it should."""
    with short(server, timeout_s=1) as hasty:
        getattr(node, fault)()
        with pytest.raises(DeadlineExceeded, match=r"in time: no answer .*Raise timeout_s"):
            hasty.score(service.local_rollouts(ROWS))


def test_unreachable_host_is_named(node):
    """An address that no machine has says so."""
    with (
        contextlib.closing(RewardClient(f"{node.nobody}:5000", connect_timeout_s=4)) as client,
        pytest.raises(Unavailable, match=rf"{node.nobody}:5000 .*: No route to host"),
    ):
        client.connect()


def test_slow_link(node, server, client):
    """A megabyte over a slow link arrives within the deadline, or the deadline is named."""
    rows = service.local_rollouts(ROWS, prompt="x" * 2**18)
    node.throttle("6mbit")
    with short(server, timeout_s=0.5) as hasty, pytest.raises(DeadlineExceeded, match="timeout_s"):
        hasty.score(rows)
    assert client.score(rows).totals.tolist() == TOTALS


def test_server_that_stands_still(server):
    """A stopped process accepts connections and says nothing: no endless wait, and it recovers."""
    with short(server, timeout_s=1, connect_timeout_s=6) as client:
        with standing_still(server), pytest.raises(Unavailable, match=r"reached: .*not answer"):
            client.connect()
        client.connect()
        with standing_still(server), pytest.raises(DeadlineExceeded, match="in time: no answer"):
            client.score(service.local_rollouts(ROWS))
        assert client.score(service.local_rollouts(ROWS)).totals.tolist() == TOTALS
