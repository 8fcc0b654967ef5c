# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains in two processes while servers and workers are killed, stalled and fed nonsense.

First one trainer fails between two exchanges, which must end both; started again they go on from
where they were, under faults. `make chaos` runs the long form. Ends with a table and writes
summary.json; the exit code is 1 if a row was lost or came twice, was scored with other parameters,
or a process was left behind.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc

from deploy.local.nodes import free_port
from tests.chaos.faults import Faults
from tests.chaos.reward_fns import OTHER_FACTOR
from tests.chaos.services import MARK, Service, Watch, left_behind
from tests.chaos.train import FAILURE
from trainer import recipes

PROCESSES = 2
WORKERS = 4
FUNCTIONS = Path(__file__).with_name("reward_fns.py")
REWARDS = f"""
[[reward]]
fn = "{FUNCTIONS}:arithmetic"
timeout_s = 1.0
params = {{ factor = 1.0 }}

[[reward]]
fn = "integer_format"
weight = 0.2
"""
# After this step the trainer of the last process fails; all end within so many seconds.
FAILS_AT = 2
_ALL_END_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job under faults.

    Attributes:
        steps: training steps.
        seed: of the faults.
        every_s: mean seconds between faults.
        timeout_s: longest time for the job.
        out: folder of summary.json and the logs.
    """

    steps: int
    seed: int
    every_s: float
    timeout_s: float
    out: Path


def run(job: Job) -> dict[str, Any]:
    """Runs the job and counts.

    Raises:
        RuntimeError: the servers did not start, or a trainer failed or hung.
    """
    mark = uuid.uuid4().hex
    job.out.mkdir(parents=True, exist_ok=True)
    for old in job.out.glob("*.log"):
        old.unlink()
    journal = job.out / "executions.log"
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        environment = {
            MARK: mark,
            "CHAOS_JOURNAL": str(journal.resolve()),
            "CHAOS_BREAK": f"{name}/broken",
        }
        summary = _run(job, Path(name), environment)
    executed = collections.Counter(journal.read_text().split())
    journal.unlink()
    deadline = time.monotonic() + 10
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return {**summary, "executions": sum(executed.values()), "left_behind_processes": len(left)}


def _run(job: Job, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    recipe = recipes.load("tiny")
    rewards = folder / "rewards.toml"
    rewards.write_text(REWARDS)
    other = folder / "other.toml"
    other.write_text(REWARDS.replace("factor = 1.0", f"factor = {OTHER_FACTOR}"))
    files = ("--tokenizer", str(recipe.tokenizer_dir))
    addresses = [f"unix:{folder}/worker{i}" for i in range(WORKERS)]
    endpoints = [f"unix:{folder}/server{i}" for i in range(PROCESSES)]

    def service(name: str, *arguments: str) -> Service:
        return Service(name, list(arguments), folder=job.out, environment=environment)

    workers = [
        service(
            f"worker {i}",
            *("reward_server", "worker", "--listen", address, "--slots", "1"),
            *("--rewards", str(rewards), *files),
        )
        for i, address in enumerate(addresses)
    ]
    servers = [
        service(
            f"server {i}",
            *("reward_server", "serve", "--listen", endpoint),
            *("--workers", ",".join(addresses), *files),
        )
        for i, endpoint in enumerate(endpoints)
    ]
    faults = Faults(
        *(servers, endpoints, workers),
        other_rewards=other,
        broken=folder / "broken",
        seed=job.seed,
        every_s=job.every_s,
    )
    services = [*workers, *servers]
    (job.out / "metrics.jsonl").unlink(missing_ok=True)
    with Watch(services):
        _wait_for(endpoints)
        with _trainers(
            job, endpoints, folder, {**environment, "CHAOS_FAILS_AT": str(FAILS_AT)}
        ) as failing:
            _wait_for_failure(failing, job)
        _forget_from(FAILS_AT + 1, folder)
        with _trainers(job, endpoints, folder, environment) as trainers:
            metrics = job.out / "metrics.jsonl"
            _wait(trainers, job.timeout_s, lambda: metrics.exists() and metrics.stat().st_size)
            start = [trainer.rss_bytes() for trainer in trainers]
            with faults:
                end = _wait(trainers, job.timeout_s)
        memory = {s.name: [s.first_rss_bytes, s.rss_bytes()] for s in services}
    memory |= {t.name: list(m) for t, *m in zip(trainers, start, end, strict=True)}
    return _summary(job, faults, folder, memory)


@contextlib.contextmanager
def _trainers(
    job: Job, endpoints: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[list[Service]]:
    """The training processes; none is left when the context ends."""
    coordinator = f"127.0.0.1:{free_port()}"
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    trainers = [
        Service(
            f"trainer {i}",
            [
                *("tests.chaos.train", "--reward-endpoint", endpoint, "--recipe", "tiny"),
                *("--steps", str(job.steps), "--mesh", "fsdp=2,tp=2", "--out", str(job.out)),
                *("--checkpoint-dir", str(folder / "checkpoints"), "--checkpoint-every", "1000"),
                *("--coordinator", coordinator, "--num-processes", str(PROCESSES)),
                *("--process-id", str(i)),
            ],
            folder=job.out,
            environment={**environment, **flags, "CHAOS_ROWS": str(folder / f"rows{i}")},
            restarts=False,
        )
        for i, endpoint in enumerate(endpoints)
    ]
    try:
        yield trainers
    finally:
        for trainer in trainers:
            trainer.process.kill()
            trainer.join(10)


def _wait_for_failure(trainers: list[Service], job: Job) -> None:
    """Waits until all have ended for what one of them raised."""
    deadline = time.monotonic() + job.timeout_s
    while all(trainer.process.poll() is None for trainer in trainers):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no trainer failed within {job.timeout_s:g} s; see their logs.")
        time.sleep(0.1)
    for i, trainer in enumerate(trainers):
        trainer.join(_ALL_END_S)
        log = (job.out / f"trainer-{i}.log").read_text()
        if trainer.process.returncode <= 0 or FAILURE not in log:
            raise RuntimeError(f"{trainer.name} did not end with the error of the other:\n{log}")


def _forget_from(step: int, folder: Path) -> None:
    """Drops the outcomes of steps that the trainers, started again, have to repeat."""
    for file in (folder / f"rows{i}" for i in range(PROCESSES)):
        lines = file.read_text().splitlines(keepends=True)
        first = step * _rows_per_step()
        file.write_text("".join(line for line in lines if min(json.loads(line)["rows"]) < first))


def _rows_per_step() -> int:
    settings = recipes.load("tiny").settings
    return settings.prompts_per_step * settings.num_generations


def _wait(trainers: list[Service], timeout_s: float, until: Any = None) -> list[int]:
    """Waits for the trainers' end, or for something else; returns their last memory."""
    deadline = time.monotonic() + timeout_s
    memory = [0] * len(trainers)
    while any(trainer.process.poll() is None for trainer in trainers):
        memory = [t.rss_bytes() or old for t, old in zip(trainers, memory, strict=True)]
        if until is not None and until():
            return memory
        if time.monotonic() > deadline:
            raise RuntimeError(f"the trainers took more than {timeout_s:g} s; see their logs.")
        time.sleep(0.1)
    codes = [trainer.process.returncode for trainer in trainers]
    if any(codes):
        raise RuntimeError(f"the trainers ended with exit codes {codes}; see their logs.")
    return memory


def _wait_for(endpoints: list[str]) -> None:
    for endpoint in endpoints:
        with grpc.insecure_channel(endpoint) as channel:
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            request = reward_pb2.RewardServiceGetInfoRequest()
            stub.GetInfo(request, timeout=120, wait_for_ready=True)


def _summary(
    job: Job, faults: Faults, folder: Path, memory: dict[str, list[int]]
) -> dict[str, Any]:
    expected = job.steps * _rows_per_step()
    lines = [
        json.loads(line)
        for i in range(PROCESSES)
        for line in (folder / f"rows{i}").read_text().splitlines()
    ]
    rows = collections.Counter(row for line in lines for row in line["rows"])
    highest = max(line["highest"] for line in lines)
    masked: collections.Counter[str] = collections.Counter()
    for line in lines:
        masked.update(line["reasons"])
    steps = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    return {
        "seed": job.seed,
        "steps": len(steps),
        "faults": dict(sorted(faults.injected.items())),
        "bad_messages_answered": dict(sorted(faults.answers.items())),
        "rows_expected": expected,
        "rows_scored": sum(line["valid"] for line in lines),
        "rows_masked": dict(sorted(masked.items())),
        "rows_lost": expected - len(rows),
        "rows_twice": sum(count - 1 for count in rows.values()),
        "highest_reward": highest,
        # The first step compiles.
        "longest_stall_s": max(step["step_s"] for step in steps[1:]),
        "median_step_s": sorted(step["step_s"] for step in steps)[len(steps) // 2],
        "memory_mb": {k: [round(v / 2**20) for v in pair] for k, pair in memory.items()},
    }


def is_good(summary: dict[str, Any]) -> bool:
    """Whether every row had one outcome, a right one, and nothing was left."""
    outcomes = summary["rows_scored"] + sum(summary["rows_masked"].values())
    zeros = ("rows_lost", "rows_twice", "left_behind_processes")
    right = outcomes == summary["rows_expected"] and summary["highest_reward"] < OTHER_FACTOR
    return right and not any(summary[key] for key in zeros)


def _print(summary: dict[str, Any]) -> None:
    for key, value in summary.items():
        if isinstance(value, dict):
            print(key)
            for name, count in value.items():
                shown = " -> ".join(map(str, count)) if isinstance(count, list) else count
                print(f"    {name:22s} {shown}")
        else:
            print(f"{key:26s} {value:,.2f}" if isinstance(value, float) else f"{key:26s} {value}")


def main() -> int:
    """Runs the job by flags."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every-s", type=float, default=1.5, help="mean seconds between faults")
    parser.add_argument("--timeout-s", type=float, default=1800.0)
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"))
    job = Job(**vars(parser.parse_args()))
    print(f"{job.steps} steps under faults, seed {job.seed}; logs in {job.out}", flush=True)
    summary = run(job)
    (job.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    _print(summary)
    return 0 if is_good(summary) else 1


if __name__ == "__main__":
    sys.exit(main())
