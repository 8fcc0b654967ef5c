# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's own script and own srun line, with a reward server on each node of the allocation."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slurm.cluster import NODES
from tests.slurm.jobs import RECIPE, ROWS, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slurm.jobs import Jobs

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

STEPS = 3
SCRIPT = Path(__file__).with_name("grpo_script.py")


@contextlib.contextmanager
def allocation(jobs: Jobs) -> Iterator[str]:
    """Two nodes, as salloc gives them; its number."""
    command = ("salloc", "--no-shell", "--nodes=2", "--ntasks-per-node=1")
    done = subprocess.run(
        command, env=jobs.environment(), capture_output=True, text=True, timeout=60, check=True
    )
    job = re.search(r"job allocation (\d+)", done.stderr)[1]
    try:
        yield job
    finally:
        jobs.cancel(job)


def test_script_with_a_line_of_its_own(jobs: Jobs) -> None:
    """`srun -u --label --ntasks=2 ... python SCRIPT` trains; each node's server scores its rows."""
    tasks = ("--overlap", "--ntasks=2", "--ntasks-per-node=1")
    files = ("--tokenizer", RECIPE.tokenizer_dir, "--rewards", RECIPE.rewards_file)
    with allocation(jobs) as job:
        line = ("srun", f"--jobid={job}", *tasks)
        output = f"--output={jobs.folder}/server-%n.log"
        servers = subprocess.Popen(
            [*line, output, SCRIPTS / "serve.sh", *files], env=jobs.environment()
        )
        with (jobs.folder / "train.log").open("w") as log:
            own = (SCRIPTS / "train.sh", "python", SCRIPT, str(STEPS))
            trainer = subprocess.Popen(
                [*line, "-u", "--label", *own], env=jobs.environment(), stdout=log, stderr=log
            )
        try:
            assert trainer.wait(400) == 0, jobs.logs()
            servers.send_signal(signal.SIGUSR1)
            assert servers.wait(60) == 0, jobs.logs()
        finally:
            for process in (trainer, servers):
                process.kill()
                process.wait()
    text = (jobs.folder / "train.log").read_text()
    for process in range(len(NODES)):
        assert f"{process}: process {process} of 2 took {STEPS} steps" in text
        server = (jobs.folder / f"server-{process}.log").read_text()
        assert f"stopped rows_scored={STEPS * ROWS // 2}" in server
