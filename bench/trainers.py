# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated training processes: real clients, many of them in one operating system process.

Run as a program: connects, waits for a line on standard input, scores until the time is over and
prints the rows of each client as JSON.
"""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from bench import fleet
from trainer import RewardClient
from trainer.codec import LocalRollouts


def rollouts(first: int, rows: int, seconds: float) -> LocalRollouts:
    """Rows of 64 tokens that take so long."""
    return LocalRollouts(
        row_ids=np.arange(first, first + rows),
        group_ids=np.arange(first, first + rows) // 8,
        prompts=["p" * 64] * rows,
        completion_ids=np.zeros((rows, 64), np.int32),
        end_token_ids=[fleet.END],
        pad_token_id=fleet.END,
        columns={"seconds": [seconds] * rows},
    )


def _train(client: RewardClient, rows: int, seconds: float, until: float) -> tuple[int, int]:
    """Steps until the time is over; rows done by then, in all and of failed rows."""
    done = failed = step = 0
    while True:
        rewards = client.score(rollouts(rows * step, rows, seconds))
        if rewards is None:
            raise RuntimeError("no rows were sent")
        step += 1
        failed += int((~rewards.valid).sum())
        if time.monotonic() > until:
            return done, failed
        done += rows


def main(argv: Sequence[str]) -> None:
    """Runs so many clients of a server."""
    endpoint, first, count, rows, seconds, run_s = argv
    clients = [RewardClient(endpoint, timeout_s=280) for _ in range(int(count))]
    for number, client in enumerate(clients, int(first)):
        client.process_index = number
        client.connect()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(run_s)
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as threads:
        runs = [threads.submit(_train, c, int(rows), float(seconds), until) for c in clients]
        print(json.dumps([run.result() for run in runs]), flush=True)
    for client in clients:
        client.close()


class Trainers:
    """A process with so many of them."""

    def __init__(
        self, endpoint: str, *, first: int, count: int, rows: int, seconds: float, run_s: float
    ) -> None:
        """Starts it and connects."""
        arguments = [endpoint, *map(str, (first, count, rows, seconds, run_s))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.trainers", *arguments],
            cwd=fleet.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ready(self) -> None:
        """Waits until all are connected."""
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            raise SystemExit("simulated trainers could not connect.")

    def go(self) -> None:
        """Lets them begin."""
        if self._process.stdin is not None:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def result(self) -> list[list[int]]:
        """Rows done and rows failed of each, once all are through."""
        output, _ = self._process.communicate(timeout=300)
        rows: list[list[int]] = json.loads(output)
        return rows


if __name__ == "__main__":
    main(sys.argv[1:])
