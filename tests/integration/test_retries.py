# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the trainer's client that are sent again, or ended by closing it."""

from __future__ import annotations

import contextlib
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration import relay, service
from trainer import RewardClient, RewardError, Unavailable, calls

ROWS = ["a", "bc", "", "def"]
TOTALS = [1.0, 2.0, 0.0, 3.0]


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a server, and one for the marks of its rows."""
    (tmp_path / "marks").mkdir()
    return service.write_files(tmp_path, rewards=service.MARKED)


def serving(folder, name="s", *flags):
    """A reward server on a socket in the folder."""
    files = service.files(folder)
    return service.command(
        "serve", "--listen", f"unix:{folder}/{name}", *files, "--slots", 2, *flags
    )


def rows(folder, seconds=0.5):
    """Rows that leave marks."""
    return service.local_rollouts(ROWS, seconds=seconds, folder=folder / "marks")


def started(folder):
    """Whether a row is being scored."""
    return list((folder / "marks").iterdir())


@pytest.mark.parametrize(
    ("reset", "code"),
    [(relay.CANCEL, "CANCELLED"), (relay.INTERNAL_ERROR, "INTERNAL"), (None, "UNAVAILABLE")],
)
def test_broken_connection_is_retried_and_rows_are_scored_once(reset, code, folder, caplog):
    """A stream that is cancelled or reset, or a connection that ends: no row is scored twice."""
    with serving(folder) as server, ThreadPoolExecutor() as threads:
        server.ready()
        with (
            relay.relay(folder / "s") as between,
            contextlib.closing(RewardClient(between.address, timeout_s=60)) as client,
        ):
            client.connect()
            waiting = threads.submit(client.score, rows(folder))
            service.until(lambda: started(folder))
            # The call before was stream 1.
            if reset is None:
                between.hang_up()
            else:
                between.reset(3, reset)
            assert waiting.result(60).totals.tolist() == TOTALS
            assert client.connect().rows_scored == len(ROWS)
    assert len(started(folder)) == len(ROWS)
    assert f"retrying after {code} " in caplog.text


def test_server_that_stops_in_mid_call(folder, caplog):
    """A call cut off by the end of the drain goes to the next server on the path."""
    with (
        ThreadPoolExecutor() as threads,
        contextlib.closing(RewardClient(f"unix:{folder}/s", timeout_s=60)) as client,
    ):
        with serving(folder, "s", "--drain-s", 0) as first:
            first.ready()
            client.connect()
            waiting = threads.submit(client.score, rows(folder, seconds=1))
            service.until(lambda: started(folder))
            assert first.end(signal.SIGTERM) == 0
        with serving(folder) as second:
            second.ready()
            assert waiting.result(60).totals.tolist() == TOTALS
    assert "retrying after " in caplog.text


def test_retry_finds_the_server_that_took_over_the_path(folder):
    """A retry connects anew: to the socket that lies at the path now."""
    with (
        ThreadPoolExecutor() as threads,
        contextlib.closing(RewardClient(f"unix:{folder}/s", timeout_s=60)) as client,
        serving(folder) as first,
        serving(folder, "next") as second,
    ):
        first.ready()
        second.ready()
        client.connect()
        waiting = threads.submit(client.score, rows(folder))
        service.until(lambda: started(folder))
        (folder / "next").rename(folder / "s")
        first.end(signal.SIGKILL)
        assert waiting.result(60).totals.tolist() == TOTALS


def closed_error(waiting):
    """The error of a call whose client was closed."""
    with pytest.raises(RewardError, match="ended: the client was closed") as error:
        waiting.result(20)
    assert error.value.reason == "CLIENT_CLOSED"
    assert f"the call {error.value.request_id} to" in str(error.value)
    assert error.value.request_id


def test_close_ends_a_call_under_way(folder):
    """A thread that waits for rewards is woken; the client can be used again."""
    with serving(folder) as server, ThreadPoolExecutor() as threads:
        server.ready()
        client = RewardClient(f"unix:{folder}/s", timeout_s=300)
        waiting = threads.submit(client.score, rows(folder, seconds=25))
        service.until(lambda: started(folder))
        handle = client.submit(rows(folder))
        client.close()
        closed_error(waiting)
        closed_error(threads.submit(handle.result))
        assert client.connect().slots == 2
        client.close()


def test_close_ends_a_call_that_waits_to_be_sent_again(tmp_path, caplog, monkeypatch):
    """A thread in the pause between two attempts is woken, too."""
    monkeypatch.setattr(calls, "_FIRST_BACKOFF_S", 120.0)
    client = RewardClient(f"unix:{tmp_path}/none", timeout_s=300)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.score, service.local_rollouts(ROWS))
        service.until(lambda: "retrying after UNAVAILABLE" in caplog.text)
        client.close()
        closed_error(waiting)


def test_notice_of_a_long_wait_names_the_failure(tmp_path, caplog, monkeypatch):
    """While nothing answers, a line now and then says what is waited for, how long, and why."""
    monkeypatch.setattr(calls, "NOTICE_S", 0.5)
    client = RewardClient(f"unix:{tmp_path}/none", timeout_s=2)
    with contextlib.closing(client), pytest.raises(Unavailable, match="No such file") as error:
        client.score(service.local_rollouts(ROWS))
    assert f"(rows 0..3, request {error.value.request_id})" in str(error.value)
    assert error.value.request_id
    lines = [r.getMessage() for r in caplog.records if r.name == "trainer.calls"]
    assert 2 <= len(lines) <= 5
    for part in ("rows=0..3", f"endpoint=unix:{tmp_path}/none", "failure=No such file", "left_s="):
        assert part in lines[-1]


def test_error_at_the_deadline_says_what_failed_before(folder):
    """A call that was cut off, and then not answered in time, tells both."""
    with serving(folder) as server, ThreadPoolExecutor() as threads:
        server.ready()
        with (
            relay.relay(folder / "s") as between,
            contextlib.closing(RewardClient(between.address, timeout_s=3)) as client,
        ):
            client.connect()
            waiting = threads.submit(client.score, rows(folder, seconds=25))
            service.until(lambda: started(folder))
            began = time.monotonic()
            between.hang_up()
            with pytest.raises(RewardError, match=r"2 attempts .* before failed: .*closed"):
                waiting.result(60)
            assert time.monotonic() - began < 30
