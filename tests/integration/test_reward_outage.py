# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards that a dead server keeps from coming: all processes wait, or stop, together.

The servers are real, and so is the coordination service; processes are threads.
"""

from __future__ import annotations

import contextlib
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration import service
from tests.unit.test_agreement import clients, everywhere  # noqa: F401 - a fixture
from trainer import ProcessesDisagree, RewardClient, agreed_rewards, calls, outages
from trainer.agreed_rewards import AgreedRewards
from trainer.agreement import Agreement
from trainer.coordination import Coordination
from trainer.failures import FailedRows, FailurePolicy
from trainer.outages import OutagePolicy, StoppedWaiting
from trainer.paths.server import ServerPath
from trainer.submission import Submission

ROWS = ["a", "bc", "", "def"]
TOTALS = [1.0, 2.0, 0.0, 3.0]
BROKEN = 1


class Path(ServerPath):
    """The way of rows of one process to its server."""

    name = "grpc"

    def __init__(self, client):
        """Takes the client of the process."""
        self._client = client

    def begin(self, place):
        """Starts a step."""
        del place
        return Submission(self._client.submit)


class Job:
    """Three processes, each with a server, which end with the context."""

    def __init__(self, folder, services, stack):
        self._folder, self._stack = folder, stack
        self.servers = [self.serve(process) for process in range(len(services))]
        for server in self.servers:
            server.ready()
        self._jobs = [Coordination(c, p, len(services)) for p, c in enumerate(services)]
        self._clients = [
            stack.enter_context(
                contextlib.closing(RewardClient(f"unix:{folder}/s{process}", timeout_s=5))
            )
            for process in range(len(services))
        ]
        self.stop_reason = ""

    def serve(self, process):
        """Starts the server of a process."""
        files = service.files(self._folder)
        address = f"unix:{self._folder}/s{process}"
        flags = ("--listen", address, *files, "--slots", 1)
        return self._stack.enter_context(service.command("serve", *flags))

    def begin(self, number, policy):
        """Sends the rows of a step; waits for them in threads."""
        for job in self._jobs:
            job.number = number
        made = everywhere(lambda p: self._agreed(p, policy))
        steps = []
        for process, agreed in enumerate(made):
            assert isinstance(agreed, AgreedRewards), agreed
            step = agreed._path.begin("step")
            rows = service.local_rollouts(ROWS, seconds=0.2, folder=self._folder / f"m{process}")
            step.send(lambda rows=rows: rows)
            steps.append(step)
        return lambda: everywhere(
            lambda p: made[p].wait(steps[p], "the step", FailedRows(FailurePolicy()))
        )

    def _agreed(self, process, policy):
        return AgreedRewards(
            Path(self._clients[process]),
            agreement=Agreement(timeout_s=60, job=self._jobs[process]),
            policy=FailurePolicy(),
            outages=policy,
            stop_reason=lambda: self.stop_reason if process == 2 else "",
            fingerprint="",
        )


@pytest.fixture
def job(tmp_path, clients, monkeypatch):  # noqa: F811 - a fixture
    """Exchanges that are over soon, so that an outage is longer than one of them."""
    monkeypatch.setattr(outages, "NOTICE_S", 0.5)
    monkeypatch.setattr(calls, "NOTICE_S", 0.5)
    monkeypatch.setattr(agreed_rewards, "_MARGIN_S", 2.0)
    service.write_files(tmp_path, rewards=service.MARKED)
    for process in range(len(clients)):
        (tmp_path / f"m{process}").mkdir()
    with contextlib.ExitStack() as stack:
        yield Job(tmp_path, clients, stack)


def test_all_wait_and_have_the_rewards_of_the_same_rows(job, tmp_path, caplog):
    """Those that have theirs wait longer than an exchange may take; no row is sent to others."""
    waiting = job.begin(10**7, OutagePolicy(on_reward_outage="wait", outage_timeout_s=60))
    service.until(lambda: list((tmp_path / f"m{BROKEN}").iterdir()))
    job.servers[BROKEN].end(signal.SIGKILL)
    with ThreadPoolExecutor() as threads:
        results = threads.submit(waiting)
        service.until(lambda: re.search(r"outage waited_s=(8|9|\d\d) left_s", caplog.text))
        job.serve(BROKEN)
        packed = results.result(60)
    alike = {p.values.tobytes() for p in packed}
    assert len(alike) == 1
    assert packed[BROKEN].wait_s > 8
    assert "all processes wait outage_timeout_s=60 processes=[1] cause=Unavailable: " in caplog.text
    assert caplog.text.count("the step: the reward outage is over") == len(packed)
    sent = set(re.findall(rf"/s{BROKEN} request_id=([^ ]+)", caplog.text))
    assert len(sent) == 1
    for process in (0, 2):
        assert len(list((tmp_path / f"m{process}").iterdir())) == len(ROWS)


@pytest.mark.parametrize("rule", ["wait", "stop"])
def test_without_rewards_all_stop(job, rule):
    """With the error of the client: after the wait, or at once where nobody is to wait."""
    waiting = job.begin(2 * 10**7, OutagePolicy(on_reward_outage=rule, outage_timeout_s=4))
    job.servers[BROKEN].end(signal.SIGKILL)
    results = waiting()
    for result in results:
        assert isinstance(result, ProcessesDisagree)
        assert f"process {BROKEN} failed at 'the step': Unavailable: " in str(result)
        waited_s = float(re.search(r"attempts in ([\d.]+) s", str(result))[1])
        assert (waited_s > 7) == (rule == "wait")
    assert results[BROKEN].__cause__.outage


def test_a_stop_ends_the_wait_of_all(job, caplog):
    """SIGTERM to one process must not wait for a server."""
    waiting = job.begin(3 * 10**7, OutagePolicy(on_reward_outage="wait", outage_timeout_s=600))
    job.servers[BROKEN].end(signal.SIGKILL)
    with ThreadPoolExecutor() as threads:
        results = threads.submit(waiting)
        service.until(lambda: "waiting in a reward outage" in caplog.text)
        job.stop_reason = "SIGTERM"
        for result in results.result(60):
            assert isinstance(result, StoppedWaiting)
            assert str(result) == "SIGTERM"


def test_other_functions_are_no_outage(job, tmp_path):
    """A server that comes back with them ends the wait of all, with what is different."""
    waiting = job.begin(4 * 10**7, OutagePolicy(on_reward_outage="wait", outage_timeout_s=600))
    job.servers[BROKEN].end(signal.SIGKILL)
    service.write_files(tmp_path, rewards=f"{service.MARKED}\nweight = 0.5\n")
    with ThreadPoolExecutor() as threads:
        results = threads.submit(waiting)
        job.serve(BROKEN)
        for result in results.result(60):
            assert isinstance(result, ProcessesDisagree)
            assert "InvalidRequest: " in str(result)
            assert "weight 0.5, was 1" in str(result)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_reward_outage": "skip"}, "`on_reward_outage` must be stop or wait, got 'skip'"),
        ({"outage_timeout_s": 0}, "`outage_timeout_s` must be > 0 seconds and finite, got 0"),
        ({"outage_timeout_s": float("inf")}, "`outage_timeout_s` must be > 0 .*, got inf"),
    ],
)
def test_settings_are_checked(settings, message):
    """By name, with the rule."""
    with pytest.raises(ValueError, match=message):
        OutagePolicy(**settings)
