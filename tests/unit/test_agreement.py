# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges through a real coordination service, whose clients are threads."""

from __future__ import annotations

import collections
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jax._src.lib import _jax

from trainer.agreement import Agreement
from trainer.coordination import Coordination
from trainer.errors import ProcessesDisagree, ScoringFailed
from trainer.exchange import raised_together

PROCESSES = 3
# Far above what a loaded machine needs, far below the bound of the exchanges.
SOON_S = 30.0
BOUND_S = 300.0


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Any]]:
    """Clients of one service."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = _jax.get_distributed_runtime_service(address, PROCESSES)
    made = [_jax.get_distributed_runtime_client(address, p) for p in range(PROCESSES)]
    everywhere(lambda process: made[process].connect())
    yield made
    everywhere(lambda process: made[process].shutdown())
    service.shutdown()


def everywhere(call: Callable[[int], Any]) -> list[Any]:
    """What a call gives, or raises, on each process."""
    results: list[Any] = [None] * PROCESSES

    def run(process: int) -> None:
        try:
            results[process] = call(process)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            results[process] = error

    threads = [threading.Thread(target=run, args=(p,)) for p in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SOON_S)
    return results


_numbers = iter(range(0, 10**6, 1000))


@pytest.fixture
def jobs(clients: list[Any]) -> list[Coordination]:
    """A job for each test: its exchanges have numbers of their own."""
    made = [Coordination(client, p, PROCESSES) for p, client in enumerate(clients)]
    first = next(_numbers)
    for job in made:
        job.number = first
    return made


def agreements(jobs: list[Coordination], timeout_s: float = BOUND_S) -> list[Agreement]:
    """One for each process."""
    return [Agreement(timeout_s=timeout_s, job=job) for job in jobs]


def test_a_decision_may_hold_counts(jobs: list[Coordination]) -> None:
    """A Counter arrives as the dict that it is."""
    made = agreements(jobs)
    counts = {"failed": collections.Counter("aab")}
    results = everywhere(lambda p: made[p].exchange("here", {}, lambda _: counts))
    assert results == [{"failed": {"a": 2, "b": 1}}] * PROCESSES


def test_a_decision_that_cannot_travel_is_an_error_on_all(jobs: list[Coordination]) -> None:
    """Nobody waits for it."""
    made = agreements(jobs)
    for result in everywhere(lambda p: made[p].exchange("here", {}, lambda _: {(1, 2): 3})):
        assert isinstance(result, ProcessesDisagree)
        assert "keys must be str" in str(result)


def test_all_get_the_decision_on_all_values(jobs: list[Coordination]) -> None:
    """It is made once, from the values by process index."""
    made = agreements(jobs)

    def add(values: list[dict[str, Any]]) -> dict[str, Any]:
        return {"all": [value["p"] for value in values], "zero": 0}

    results = everywhere(lambda p: made[p].exchange("here", {"p": p}, add))
    assert results == [{"all": [0, 1, 2], "zero": 0}] * PROCESSES
    assert (
        everywhere(lambda p: made[p].exchange("again", {"p": p}))
        == [[{"p": 0}, {"p": 1}, {"p": 2}]] * PROCESSES
    )


def test_nothing_is_left_of_an_exchange(jobs: list[Coordination]) -> None:
    """The service keeps the keys of the last exchange only."""
    made = agreements(jobs)
    for number in range(5):
        everywhere(lambda p, number=number: made[p].all_ok(f"place {number}", None))
    first = jobs[0].number - 5
    kept = [n for n in range(5) if jobs[0].folder(f"shardward/agreement/{first + n}")]
    assert kept == [4]


@pytest.mark.parametrize("who", range(PROCESSES))
def test_error_of_one_is_raised_on_all(jobs: list[Coordination], who: int) -> None:
    """By name, and so that all may go on together."""
    made = agreements(jobs)
    error = ValueError("bad thing")
    results = everywhere(lambda p: made[p].all_ok("here", error if p == who else None))
    for result in results:
        assert isinstance(result, ProcessesDisagree)
        assert str(result) == f"process {who} failed at 'here': ValueError: bad thing"
        assert raised_together(result)
    assert results[who].__cause__ is error


def test_error_of_the_decision_keeps_its_class(jobs: list[Coordination]) -> None:
    """All raise what process 0 raised."""
    made = agreements(jobs)

    def refuse(_: object) -> None:
        raise ScoringFailed("too many", reason="ROWS_FAILED")

    for result in everywhere(lambda p: made[p].exchange("here", {}, refuse)):
        assert isinstance(result, ScoringFailed)
        assert (str(result), result.reason) == ("too many", "ROWS_FAILED")


@pytest.mark.parametrize("who", range(PROCESSES))
def test_error_between_exchanges_reaches_those_that_wait(
    jobs: list[Coordination], who: int
) -> None:
    """At once; they do not wait for their bound, and the next exchange works again."""
    made = agreements(jobs)

    def work(process: int) -> None:
        with made[process].guarded(lambda: "step 3"):
            if process == who:
                time.sleep(1)
                raise ValueError("half an emoji \ud83d")
            made[process].all_ok("the next place", None)

    start = time.monotonic()
    results = everywhere(work)
    assert time.monotonic() - start < SOON_S
    for result in results:
        assert isinstance(result, ProcessesDisagree)
        assert str(result) == f"process {who} failed at 'step 3': ValueError: half an emoji \ud83d"
        assert not raised_together(result)
    assert everywhere(lambda p: made[p].all_ok("afterwards", None)) == [None] * PROCESSES


def test_deferred_error_waits_for_the_next_exchange(jobs: list[Coordination]) -> None:
    """The process goes on until then, and all raise together."""
    made = agreements(jobs)
    passed = []

    def work(process: int) -> None:
        with made[process].deferred():
            if process == 1:
                raise ValueError("bad hook")
        passed.append(process)
        made[process].all_ok("the next place", None)

    for result in everywhere(work):
        assert "process 1 failed at 'the next place': ValueError: bad hook" in str(result)
        assert raised_together(result)
    assert sorted(passed) == [0, 1, 2]


@pytest.mark.parametrize("who", range(PROCESSES))
def test_process_that_does_not_come_is_named(jobs: list[Coordination], who: int) -> None:
    """Within the bound; the one that comes late is told so, and then all can agree again."""
    made = agreements(jobs, 2.0)

    def work(process: int) -> None:
        if process == who:
            time.sleep(5)
        made[process].all_ok("here", None)

    results = everywhere(work)
    for process, result in enumerate(results):
        assert f"processes [{who}] did not come to 'here' within 2 s" in str(result)
        assert ("came after others had given up" in str(result)) == (process == who)
    made = agreements(jobs)
    assert everywhere(lambda p: made[p].all_ok("afterwards", None)) == [None] * PROCESSES


def test_processes_at_different_places(jobs: list[Coordination]) -> None:
    """All raise both places."""
    made = agreements(jobs)
    for result in everywhere(lambda p: made[p].all_ok(f"place {min(p, 1)}", None)):
        assert "process 0 is at 'place 0', process 1 at 'place 1'" in str(result)
