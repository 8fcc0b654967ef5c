# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed or stopped go on from their checkpoint; a process that dies is named."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.multiprocess.conftest import Run, launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]

STEPS = 6
WAITS = {"lose_server_at": 1, "reward_timeout_s": 3, "on_reward_outage": "wait"}
TWICE = {"iterations": 2, "beta": 0.1, "steps": 3}


@dataclasses.dataclass
class Broken:
    """A job whose processes were all killed, and the job that went on from its checkpoints."""

    at: int
    first: Run
    second: Run


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    """Two processes, killed at a random step after two runs that were asked to stop."""
    folder = tmp_path_factory.mktemp("resume")
    at = random.SystemRandom().randrange(2, STEPS - 1)

    def run(name: str, checkpoint: str | None = None, **values: Any) -> dict[str, Any]:
        kept = {"checkpoint": str(folder / checkpoint)} if checkpoint else {}
        return {"run": "train", "name": name, "steps": STEPS, **kept, **values}

    first = [
        run("stop", "stop", stop_at=1, stop=[1]),
        run("stop twice", "twice", **TWICE, stop_at=0, stop=[0]),
        run("die", "die", die_at=at, die=[0, 1]),
    ]
    second = [
        run("whole"),
        run("after stop", "stop"),
        run("after death", "die"),
        run("nothing left", "die"),
        run("whole twice", **TWICE),
        run("after stop twice", "twice", **TWICE),
        run("outage", **WAITS, restart_after_s=8, outage_timeout_s=300),
        run("outage, callback", **WAITS, restart_after_s=8, path="callback"),
        run("long outage", "long", **WAITS, restart_after_s=25, outage_timeout_s=4),
        run("no server", lose_server_at=1, reward_timeout_s=5),
    ]
    return Broken(at, launch(folder / "1", 2, first, 600), launch(folder / "2", 2, second, 800))


def test_killed_job_goes_on_from_its_checkpoint(broken: Broken) -> None:
    """A job killed at a random step ends with the rewards and parameters of an unbroken run."""
    assert broken.first.exit_codes == [-9, -9]
    for process in (0, 1):
        whole, rest = broken.second.of("whole", process), broken.second.of("after death", process)
        start = rest["steps"][0]
        assert 0 < start <= broken.at
        for name in ("steps", "rewards", "tokens", "advantages", "row_ids", "losses"):
            assert rest[name] == whole[name][start:], name
        assert rest["params"] == whole["params"]


def test_stop_of_one_process_stops_all_with_a_checkpoint(broken: Broken) -> None:
    """All processes end before the same step, and the last step is in the checkpoint."""
    for process in (0, 1):
        stopped = broken.first.of("stop", process)
        assert (stopped["stopped"], stopped["steps"]) == ("a test", [0, 1])
        whole, rest = broken.second.of("whole", process), broken.second.of("after stop", process)
        assert rest["rewards"] == whole["rewards"][2:]
        assert rest["params"] == whole["params"]
        assert rest["steps"] == [2, 3, 4, 5]


def test_several_updates_of_a_batch_are_one_step(broken: Broken) -> None:
    """With two updates for each batch a resumed run leaves out the right batches."""
    for process in (0, 1):
        whole = broken.second.of("whole twice", process)
        rest = broken.second.of("after stop twice", process)
        assert rest["row_ids"] == whole["row_ids"][1:]
        assert rest["params"] == whole["params"]


def test_finished_run_has_nothing_left(broken: Broken) -> None:
    """Starting a finished run again changes nothing and samples nothing."""
    nothing = broken.second.of("nothing left")
    assert nothing["rewards"] == []
    assert nothing["params"] == broken.second.of("whole")["params"]


def test_lost_server_stops_all(broken: Broken) -> None:
    """A server that stays away ends both processes with one error: process, address, remedy."""
    errors = [broken.second.raw("no server", process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1]
    assert "process 1 failed at 'rewards of step 2 (train)': Unavailable: " in errors[0]
    assert "/s1" in errors[0]
    assert "reward-server serve --listen" in errors[0]


@pytest.mark.parametrize("name", ["outage", "outage, callback"])
def test_an_outage_that_is_waited_for_changes_nothing(broken: Broken, name: str) -> None:
    """A server killed in a run and started again later: rewards and parameters as without it."""
    for process in (0, 1):
        whole, waited = broken.second.of("whole", process), broken.second.of(name, process)
        for what in ("steps", "rewards", "tokens", "advantages", "row_ids", "losses", "params"):
            assert waited[what] == whole[what], what
        log = broken.second.logs[process]
        assert "reward outage, all processes wait outage_timeout_s=300 processes=[1]" in log
        assert "rewards of step 2 (train): the reward outage is over waited_s=" in log


def test_a_longer_outage_stops_all_with_a_checkpoint(broken: Broken) -> None:
    """At the bound the error is that of a server that stays away; what was trained is saved."""
    errors = [broken.second.raw("long outage", process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1]
    assert "process 1 failed at 'rewards of step 2 (train)': Unavailable: " in errors[0]
    for process in (0, 1):
        assert "saved a last checkpoint updates=2" in broken.second.logs[process]


def test_process_that_dies_is_named(tmp_path: Path) -> None:
    """The other process ends with an error that names it; nothing hangs."""
    dies = {"run": "train", "steps": 4, "die_at": 1, "die": [1], "agreement_timeout_s": 30}
    run = launch(tmp_path / "run", 2, [dies], 600)
    assert run.exit_codes[1] == -9
    assert run.exit_codes[0] != 0
    error = run.raw(0, 0)["error"]
    assert error.startswith("ProcessesDisagree: ")
    assert "processes [1] d" in error
