# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of deploy/slurm on a real Slurm: training, its end in every way, and workers that come and go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.slurm.cluster import CREDENTIAL_S, NODES
from tests.slurm.jobs import ROWS

if TYPE_CHECKING:
    from tests.slurm.jobs import Jobs

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


def test_job_trains_with_a_server_on_each_node(jobs: Jobs) -> None:
    """The job completes, both servers have scored their rows and have drained."""
    job = jobs.train(steps=3)
    assert jobs.end(job) == ("COMPLETED", "0:0"), jobs.logs()
    assert jobs.steps() == [0, 1, 2]
    assert jobs.rows_scored() == [3 * ROWS // 2] * 2
    for node in range(len(NODES)):
        log = (jobs.folder / "out" / f"server-{node}.log").read_text()
        assert log.count("draining") == 1
        assert "is started again" not in log
    assert "reward servers ended" not in jobs.log(job)
