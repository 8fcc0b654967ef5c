# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""An error on one process reaches all by name, wherever it comes from, and all processes end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.multiprocess.conftest import ROOT, Run, free_port, launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]

# In the exchange that follows, all processes have come: each moment with the process that raises.
MOMENTS = {
    "dataset": 1,
    "prompt": 0,
    "tokenizer": 1,
    "sending": 0,
    "on_step": 1,
    "metrics logger": 0,
    "on_train_step_end": 1,
    "on_train_step_start": 0,
}
# Far below the 300 s for which the others would have waited.
SOON_S = 120


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes that fail at one moment after the other, with a new learner each time."""
    folder = tmp_path_factory.mktemp("moments")
    scenarios = [
        {
            "run": "failure_scenarios:fail_at",
            "name": moment,
            "moment": moment,
            "who": who,
            "checkpoint": str(folder / moment) if moment in ("on_step", "dataset") else None,
        }
        for moment, who in MOMENTS.items()
    ]
    full = {"moment": "full disk", "checkpoint": str(folder / "full")}
    scenarios += [
        {**scenarios[0], **full, "name": f"full disk {who}", "who": who} for who in (0, 1)
    ]
    scenarios[-1]["checkpoint"] += "1"
    scenarios.append({**scenarios[0], "name": "merging", "moment": "merging", "checkpoint": None})
    return launch(folder / "run", 2, scenarios, 1000)


@pytest.mark.parametrize("moment", MOMENTS)
def test_error_of_one_process_is_raised_on_all(failed: Run, moment: str) -> None:
    """All raise the same error soon, which names the process and what it raised."""
    results = [failed.of(moment, process) for process in (0, 1)]
    for result in results:
        assert result["kind"] == "ProcessesDisagree", result
        assert f"process {MOMENTS[moment]} failed at " in result["raised"]
        cause = "surrogate" if moment == "prompt" else f"ValueError: bad {moment}"
        assert cause in result["raised"]
        assert result["seconds"] < SOON_S
    assert results[0]["raised"] == results[1]["raised"]


@pytest.mark.parametrize("moment", ["on_step", "dataset"])
def test_last_checkpoint_before_a_common_error(failed: Run, moment: str) -> None:
    """What all have trained until then is saved: the updates are not lost."""
    for process in (0, 1):
        result = failed.of(moment, process)
        assert result["saved"] == result["updates"] >= 1
        assert "saved a last checkpoint" in failed.logs[process]


@pytest.mark.parametrize("who", [0, 1])
def test_failed_checkpoint_is_an_error_on_all(failed: Run, who: int) -> None:
    """Soon, with the process and what its file system said."""
    for process in (0, 1):
        result = failed.of(f"full disk {who}", process)
        # The first may still be under way when the disk is full.
        said = rf"checkpoint [12] failed on process {who}: file too large"
        assert re.search(said, result["raised"]), result
        assert result["seconds"] < SOON_S


def test_process_that_waits_in_a_collective_is_ended_by_name(failed: Run) -> None:
    """It can't raise there; it ends with the other's error as its last line."""
    assert "bad merging" in failed.of("merging", MOMENTS["dataset"])["raised"]
    other = 1 - MOMENTS["dataset"]
    assert failed.exit_codes[other] == 1
    assert (
        f"process {MOMENTS['dataset']} failed at 'step 1': ValueError: bad merging"
        in (failed.logs[other])
    )


@pytest.mark.parametrize(
    ("where", "who"), [("exchange", 0), ("collective", 0), ("collective", 1), ("before", 1)]
)
def test_script_without_a_handler_ends_on_all_processes(
    tmp_path: Path, where: str, who: int
) -> None:
    """No process waits for another at its end, and each says which one failed and why."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    coordinator = f"127.0.0.1:{free_port()}"
    script = [sys.executable, "-m", "tests.multiprocess.ending_script"]
    started = []
    for process in (0, 1):
        with (tmp_path / f"{process}.log").open("wb") as log:
            arguments = [str(process), coordinator, where, str(who)]
            started.append(
                subprocess.Popen(
                    [*script, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log
                )
            )
    deadline = time.monotonic() + SOON_S
    try:
        codes = [process.wait(max(1.0, deadline - time.monotonic())) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    logs = [(tmp_path / f"{process}.log").read_text() for process in (0, 1)]
    assert codes == [1, 1], logs
    assert "ValueError: bad thing" in logs[who]
    assert f"process {who} " in logs[1 - who], logs
    assert "ValueError: bad thing" in logs[1 - who]
