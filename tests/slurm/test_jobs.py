# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of deploy/slurm on a real Slurm: training, and each way in which it ends."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.slurm.cluster import HAS_CGROUPS, NODES
from tests.slurm.jobs import ROWS

if TYPE_CHECKING:
    from tests.slurm.jobs import Jobs

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

# Elsewhere Slurm signals srun too, which then kills.
needs_cgroups = pytest.mark.skipif(not HAS_CGROUPS, reason="needs control groups, version 1")
# Asks the server; then runs until SIGTERM, or, queued again, ends at once.
COMMAND = """
reward-server check "$REWARD_ENDPOINT" || exit
[[ ! ${SLURM_RESTART_COUNT:-} ]] || exit 0
trap "exit 143" TERM
echo running
while :; do sleep 0.1; done
"""


def stopped_after(log: str) -> int:
    """The step after which the trainer says it has stopped."""
    found = re.search(r"stopped by SIGTERM after step (\d+); the same command goes on", log)
    assert found, log
    return int(found[1])


def test_job_trains_with_a_server_on_each_node(jobs: Jobs) -> None:
    """The job completes, both servers have scored their rows and have drained."""
    job = jobs.train(steps=3)
    assert jobs.end(job) == ("COMPLETED", "0:0"), jobs.logs()
    assert jobs.steps() == [0, 1, 2]
    assert jobs.rows_scored() == [3 * ROWS // 2] * 2
    for node in range(len(NODES)):
        log = jobs.server_log(node)
        assert log.count("draining") == 1
        assert "is started again" not in log
    assert "reward servers ended" not in jobs.log(job)


@needs_cgroups
def test_cancelled_job_leaves_a_checkpoint(jobs: Jobs) -> None:
    """A killed server comes back; scancel stops the processes together, with a checkpoint."""
    job = jobs.train(steps=5000)
    jobs.until(lambda: len(jobs.steps()) >= 2, "two steps")
    os.kill(jobs.servers()[0], signal.SIGKILL)
    jobs.until(lambda: "is started again" in jobs.server_log(0) + jobs.server_log(1), "a restart")
    done = len(jobs.steps())
    jobs.until(lambda: len(jobs.steps()) >= done + 3, "steps after the restart")
    jobs.cancel(job)
    assert jobs.end(job)[0] == "CANCELLED"
    step = stopped_after(jobs.log(job))
    assert (jobs.folder / "out" / "checkpoints" / "actor" / str(step)).is_dir()
    assert len(jobs.rows_scored()) == 2


@needs_cgroups
def test_job_that_is_queued_again_goes_on(jobs: Jobs) -> None:
    """After scontrol requeue the job takes the remaining steps, none twice, and completes."""
    steps = 40
    job = jobs.train(steps=steps)
    jobs.until(lambda: len(jobs.steps()) >= 2, "two steps")
    jobs.cluster.run("scontrol", "requeue", job)
    jobs.let_go_on(job)
    assert jobs.end(job) == ("COMPLETED", "0:0"), jobs.logs()
    log = jobs.log(job)
    assert f"resumed after step {stopped_after(log)} from" in log
    assert jobs.steps() == list(range(steps))
    assert sum(jobs.rows_scored()) == steps * ROWS


@needs_cgroups
def test_job_near_its_time_limit_is_queued_again(jobs: Jobs) -> None:
    """The signal before the limit stops the command; the job queues itself and runs again."""
    job = jobs.submit("job.sbatch", "bash", "-c", COMMAND, OUT=str(jobs.folder / "out"))
    jobs.until(lambda: jobs.log(job).count("running") == 2, "two processes")
    jobs.cluster.run("scancel", "--batch", "--signal=TERM", job)
    jobs.let_go_on(job)
    assert jobs.end(job) == ("COMPLETED", "0:0"), jobs.logs()
    assert "the trainer ended with exit code 143" in jobs.log(job)
    assert "queued again" in jobs.log(job)


def test_job_has_the_exit_code_of_its_trainer(jobs: Jobs) -> None:
    """A command that fails makes the job fail with its code, and the servers drain."""
    failing = 'reward-server check "$REWARD_ENDPOINT" && exit 7'
    job = jobs.submit("job.sbatch", "bash", "-c", failing, OUT=str(jobs.folder / "out"))
    assert jobs.end(job) == ("FAILED", "7:0"), jobs.logs()
    assert jobs.rows_scored() == [0, 0]


def test_servers_that_can_not_start_end_the_job(jobs: Jobs) -> None:
    """The job does not wait for servers that are configured wrongly, and says where to look."""
    variables = {"OUT": str(jobs.folder / "out"), "REWARDS": "/nowhere.toml"}
    job = jobs.submit("job.sbatch", "true", **variables)
    assert jobs.end(job) == ("FAILED", "4:0"), jobs.logs()
    assert "the reward servers were not ready" in jobs.log(job)
    assert "/nowhere.toml" in jobs.server_log(0)
