# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs on the cluster of the tests: submitted, watched, and what they leave behind."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm.cluster import CREDENTIAL_S, NODES
from trainer import recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.slurm.cluster import Cluster

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "deploy" / "slurm"
RECIPE = recipes.load("tiny")
ROWS = RECIPE.settings.prompts_per_step * RECIPE.settings.num_generations
JOB_S = 400.0


class Jobs:
    """Submits jobs of a test and cancels what is left of them.

    Args:
        cluster: where they run.
        folder: results, logs and sockets; on all "nodes".
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.sockets = folder / "sockets"
        self.sockets.mkdir()
        self._jobs: list[str] = []

    def environment(self, **variables: str) -> dict[str, str]:
        """Variables of a user's shell: commands on the path, CPU devices, a place for sockets."""
        return {
            **self.cluster.environment,
            "PATH": f"{Path(sys.executable).parent}:{self.cluster.environment['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}",
            "JAX_PLATFORMS": "cpu",
            "HERE": str(ROOT),
            "SOCKETS": str(self.sockets),
            # Most of a start is compilation, the same in all tests. JAX lets process 0 alone write;
            # the other is behind it then, and Gloo waits 30 s for it.
            "JAX_COMPILATION_CACHE_DIR": str(self.cluster.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            **variables,
        }

    def submit(
        self, script: str, *arguments: str, flags: tuple[str, ...] = (), **variables: str
    ) -> str:
        """Submits a script of deploy/slurm; returns the job's number."""
        number = "%A_%a" if any(flag.startswith("--array") for flag in flags) else "%j"
        output = f"--output={self.folder}/{script}-{number}.log"
        command = ("sbatch", "--parsable", output, *flags, str(SCRIPTS / script), *arguments)
        job = self.cluster.run(*command, environment=self.environment(**variables)).strip()
        self._jobs.append(job)
        return job

    def end(self, job: str) -> tuple[str, str]:
        """Waits for the end of a job; returns its state and exit code, like ("FAILED", "7:0")."""
        self.until(lambda: not self._queued(job), f"the end of job {job}")
        text = self.cluster.run("scontrol", "show", "job", job)
        return re.search(r"JobState=(\S+)", text)[1], re.search(r"ExitCode=(\S+)", text)[1]

    def cancel(self, job: str, *flags: str) -> None:
        """Cancels a job, or sends it a signal."""
        self.cluster.run("scancel", *flags, job)

    def let_go_on(self, job: str) -> None:
        """Waits until a job is queued again; lets it run when its old credential is forgotten."""
        self.until(lambda: self._queued(job) != "RUNNING", f"job {job} stopping")
        self.cluster.run("scontrol", "hold", job)
        self.until(lambda: self._queued(job) == "PENDING", f"job {job} in the queue")
        # Counted by slurmd; nothing tells when it has passed.
        time.sleep(CREDENTIAL_S + 2)
        self.cluster.run("scontrol", "release", job)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition; the message of a failure has the logs."""
        try:
            self.cluster.until(condition, what, timeout_s=JOB_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self) -> str:
        """All logs, for messages."""
        found = sorted(self.folder.rglob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text()[-4000:]}" for file in found)

    def log(self, job: str, script: str = "job.sbatch") -> str:
        """What a job has written."""
        file = self.folder / f"{script}-{job}.log"
        return file.read_text() if file.exists() else ""

    def rows_scored(self) -> list[int]:
        """Rows that each server had scored when it stopped, by node."""
        logs = [self.server_log(node) for node in range(len(NODES))]
        return [sum(map(int, re.findall(r"stopped rows_scored=(\d+)", log))) for log in logs]

    def server_log(self, node: int) -> str:
        """What the server of a node has written."""
        return (self.folder / "out" / f"server-{node}.log").read_text()

    def servers(self) -> list[int]:
        """Process numbers of the reward servers."""
        return [pid for pid, line in self._marked() if "serve --listen" in line]

    def steps(self) -> list[int]:
        """Steps that the trainer has written down."""
        file = self.folder / "out" / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line)["step"] for line in lines]

    def train(self, *, steps: int, **variables: str) -> str:
        """Submits a training of the recipe; returns the job's number."""
        flags = f"--steps {steps} --checkpoint-every 1000"
        out = str(self.folder / "out")
        return self.submit("job.sbatch", OUT=out, GRPO_FLAGS=flags, **variables)

    def close(self) -> None:
        """Cancels what still runs and checks that no process and no socket is left."""
        for job in self._jobs:
            self.cluster.run("scancel", job, check=False)
        for job in self._jobs:
            self.until(lambda job=job: not self._queued(job), f"the end of job {job}")
        left = lambda: [line for _, line in self._marked()] + self.cluster.processes()  # noqa: E731
        self.until(lambda: not left(), f"the end of {left()}")
        assert not list(self.sockets.iterdir())

    def _queued(self, job: str) -> str:
        """State of a job in the queue; "" if it is not there."""
        command = ("squeue", "--noheader", "--format=%T", f"--jobs={job}")
        return self.cluster.run(*command, check=False).strip()

    def _marked(self) -> Iterator[tuple[int, str]]:
        """Processes with this folder in their environment: number and command line."""
        mark = f"SOCKETS={self.sockets}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes():
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    yield int(folder.name), line
            except OSError:
                continue
