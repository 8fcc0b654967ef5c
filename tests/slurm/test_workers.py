# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Job arrays of reward workers that come and go while a job trains."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.service import worker_rows
from tests.slurm.jobs import ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.jobs import Jobs

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


def addresses(file: Path) -> list[str]:
    """Workers in the list."""
    text = file.read_text() if file.exists() else ""
    return [line.partition(" #")[0] for line in text.splitlines()]


def test_arrays_of_workers_come_and_go(jobs: Jobs) -> None:
    """A second array gets rows of a job that trains; the first is cancelled and nothing is lost."""
    file = jobs.folder / "workers"

    def pool(tasks: str) -> str:
        flags = (f"--array={tasks}", "--cpus-per-task=1")
        return jobs.submit("workers.sbatch", flags=flags, WORKERS_FILE=str(file))

    first = pool("1")
    job = jobs.train(steps=5000, WORKERS=f"file:{file}")
    jobs.until(lambda: len(jobs.steps()) >= 2, "two steps")
    (address,) = addresses(file)
    pool("2")
    jobs.until(lambda: len(addresses(file)) == 2, "a second worker")
    (other,) = set(addresses(file)) - {address}
    jobs.until(lambda: worker_rows(other) > 0, "rows on the second worker")
    jobs.cancel(first)
    assert jobs.end(first)[0] == "CANCELLED"
    assert addresses(file) == [other]
    log = jobs.log(f"{first}_1", "workers.sbatch")
    assert int(re.search(r"stopped rows_scored=(\d+)", log)[1]) >= 2 * ROWS
    done = len(jobs.steps())
    jobs.until(lambda: len(jobs.steps()) >= done + 3, "steps without the first worker")
    jobs.cancel(job, "--signal=TERM")
    assert jobs.end(job) == ("FAILED", "143:0"), jobs.logs()
    lines = (jobs.folder / "out" / "metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["rows_failed"] for line in lines) == 0
    assert sum(jobs.rows_scored()) == len(lines) * ROWS
