# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A job larger than any machine here: 256 processes, 16,384 rows of 8,192 tokens in a step.

What a row costs a server, a worker and its child is measured with real processes; how rows then
spread over workers is simulated, with the rules of the router: each server sees only its own rows,
sends to the worker that has the fewest of them, and callers take turns in a worker. The exchanges
of the training processes run as they are, with a thread for each process (`bench.agreement`). Adds
"large" to bench/scale.json.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench import agreement, fleet
from bench.scale import OUT
from reward_server.piece_size import PieceSize
from trainer import RewardClient
from trainer.codec import LocalRollouts

PROCESSES = 256
ROWS = 16_384
TOKENS = 8_192
SLOTS = 8
WORKERS = (8, 16, 32, 64, 128)
# Seconds that reward functions take: cheap arithmetic, math-verify, short programs.
ROW_S = (0.0005, 0.005, 0.1)
_BYTES_A_TOKEN = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds for a row of 8,192 tokens, and for a piece whatever it holds."""

    server_row_s: float
    server_piece_s: float
    worker_row_s: float
    worker_piece_s: float
    child_row_s: float


def _cpu_s(pid: int) -> float:
    return sum(psutil.Process(pid).cpu_times()[:2])


def _children_s(pid: int) -> float:
    return sum(_cpu_s(child.pid) for child in psutil.Process(pid).children(recursive=True))


def _rollouts(first: int, rows: int, tokens: int) -> LocalRollouts:
    return LocalRollouts(
        row_ids=np.arange(first, first + rows),
        group_ids=np.arange(rows),
        prompts=["p" * 256] * rows,
        completion_ids=np.zeros((rows, tokens), np.int32),
        end_token_ids=[fleet.END],
        pad_token_id=fleet.END,
        columns={"seconds": [0.0] * rows},
    )


def measure_costs() -> Costs:
    """Measures with one server and one worker of one slot, in calls of 64 rows and of one row."""
    with tempfile.TemporaryDirectory(prefix="shardward-costs-") as name:
        folder = Path(name)
        fleet.write_files(folder, "sleep")
        flags = ("--listen", "127.0.0.1:0", "--slots", "1")
        rewards = ("--rewards", str(folder / "rewards.toml"))
        worker = fleet.Process("worker", folder, *flags, *rewards)
        try:
            with fleet.servers(folder, 1, worker.ready().address) as (server,):
                client = RewardClient(server.address, timeout_s=200)
                client.connect()

                def run(rows: int, tokens: int, calls: int) -> list[float]:
                    client.score(_rollouts(0, rows, tokens))
                    pids = (server.pid, worker.pid)
                    before = [*map(_cpu_s, pids), _children_s(worker.pid)]
                    for _ in range(calls):
                        client.score(_rollouts(0, rows, tokens))
                    after = [*map(_cpu_s, pids), _children_s(worker.pid)]
                    return [(b - a) / calls for a, b in zip(before, after, strict=True)]

                # A call of one short row is one piece and next to nothing else.
                piece = run(1, 1, 400)
                whole = run(64, TOKENS, 20)
                client.close()
        finally:
            worker.end()
    row = [max(0.0, (w - p) / 64) for w, p in zip(whole, piece, strict=True)]
    return Costs(
        server_row_s=row[0],
        server_piece_s=piece[0],
        worker_row_s=row[1],
        worker_piece_s=piece[1],
        child_row_s=row[2],
    )


def step(costs: Costs, workers: int, row_s: float, seed: int) -> dict[str, float]:
    """Simulates the rewards of one step; every process sends its rows at the same time."""
    rng = random.Random(seed)
    own = ROWS // PROCESSES
    # Heavy-tailed, with this mean, and never longer than 10 s: a time limit.
    rows = [min(10.0, row_s / 3 * rng.paretovariate(1.5)) + costs.child_row_s for _ in range(ROWS)]
    size = PieceSize()
    size.observe(1000, 1000 * statistics.fmean(rows))
    # Pieces of each server in its order, and when its one core has sent them.
    arrivals: list[tuple[float, int, int, int, int]] = []
    for server in range(PROCESSES):
        first, clock, given = server * own, 0.0, 0
        has = [0] * workers
        while given < own:
            worker = min(range(workers), key=lambda w: (has[w], rng.random()))
            has[worker] += 1
            free = workers * SLOTS - sum(has) + 1
            taken = min(
                own - given,
                size.rows(own - given, slots=workers * SLOTS, free=free, rows_per_slot=1),
            )
            clock += costs.server_piece_s + taken * costs.server_row_s
            arrivals.append((clock, worker, server, first + given, taken))
            given += taken
    ends, most_queued = [], 0
    for worker in range(workers):
        mine = sorted(a for a in arrivals if a[1] == worker)
        end, queued = _work(mine, rows, costs)
        ends.append(end)
        most_queued = max(most_queued, queued)
    ideal = max(*rows, sum(rows) / (workers * SLOTS))
    return {
        "seconds": max(ends),
        "over_ideal": max(ends) / ideal,
        "one_queue_over_ideal": _one_queue(rows, workers * SLOTS) / ideal,
        "pieces": len(arrivals),
        "queue_mib_of_a_worker": most_queued * TOKENS * _BYTES_A_TOKEN / 2**20,
        "worker_main_s": (len(arrivals) * costs.worker_piece_s + ROWS * costs.worker_row_s)
        / workers,
    }


def _one_queue(rows: list[float], slots: int) -> float:
    """Makespan if all rows waited in one queue and nothing cost anything beside them."""
    ends = [0.0] * slots
    for row in rows:
        heapq.heapreplace(ends, ends[0] + row)
    return max(ends)


def _work(
    pieces: list[tuple[float, int, int, int, int]], rows: list[float], costs: Costs
) -> tuple[float, int]:
    """When a worker has done its pieces, and the most rows that waited there.

    Its main process takes in one piece after the other; its slots take rows of the callers in turn.
    """
    clock, ready = 0.0, []
    for sent, _, server, first, count in pieces:
        clock = max(clock, sent) + costs.worker_piece_s + count * costs.worker_row_s
        ready.append((clock, server, first, count))
    slots = [0.0] * SLOTS
    turns: collections.OrderedDict[int, collections.deque[int]] = collections.OrderedDict()
    at = waiting = most = 0
    while at < len(ready) or turns:
        now = heapq.heappop(slots)
        if not turns and at < len(ready):
            now = max(now, ready[at][0])
        while at < len(ready) and ready[at][0] <= now:
            _, server, first, count = ready[at]
            turns.setdefault(server, collections.deque()).extend(range(first, first + count))
            waiting += count
            at += 1
        most = max(most, waiting)
        server, queue = next(iter(turns.items()))
        row = queue.popleft()
        waiting -= 1
        turns.move_to_end(server)
        if not queue:
            del turns[server]
        heapq.heappush(slots, now + rows[row])
    return max(slots), most


def main() -> None:
    """Measures, simulates and prints the table."""
    results: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    start = time.perf_counter()
    costs = measure_costs()
    large: dict[str, Any] = {
        "processes": PROCESSES,
        "rows": ROWS,
        "tokens": TOKENS,
        "slots_a_worker": SLOTS,
        "costs": dataclasses.asdict(costs),
        "steps": [],
    }
    for name, value in large["costs"].items():
        print(f"{name:16s} {value * 1e3:8.3f} ms")
    for row_s in ROW_S:
        for workers in WORKERS:
            runs = [step(costs, workers, row_s, seed) for seed in range(3)]
            mean = {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}
            large["steps"].append({"row_s": row_s, "workers": workers, **mean})
            print(
                f"{row_s * 1e3:6g} ms a row, {workers:3d} workers: {mean['seconds']:7.2f} s,"
                f" {mean['over_ideal']:.2f} of ideal, one queue"
                f" {mean['one_queue_over_ideal']:.2f}, {mean['pieces']:.0f} pieces,"
                f" {mean['queue_mib_of_a_worker']:.1f} MiB in a worker's queue,"
                f" {mean['worker_main_s']:.2f} s of a worker's main process"
            )
    large["agreement"] = agreement.measure(PROCESSES, agreement.EXCHANGES)
    print(agreement.line(large["agreement"]))
    results["large"] = large
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
