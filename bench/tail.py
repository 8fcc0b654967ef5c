# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of very different cost on a few workers: how much longer than ideal each dispatcher takes.

240 rows that sleep, Pareto distributed, on 4 workers of 2 slots. Ideal is the longest row, or all
of them shared evenly by 8 slots. Nobody knows beforehand what a row costs.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import numpy as np
from shardward.v1 import scoring_pb2, scoring_pb2_grpc, types_pb2

from bench import fleet
from reward_server.channel import CLIENT_OPTIONS
from trainer import RewardClient
from trainer.codec import LocalRollouts

ROWS = 240
WORKERS = 4
SLOTS = 2
SERVERS = 4
_ROUND_ROBIN = ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}')


def costs(seed: int) -> list[float]:
    """Seconds of each row: median 40 ms, mean about 80 ms, the longest about a second."""
    rng = random.Random(seed)
    return [0.026 * rng.paretovariate(1.5) for _ in range(ROWS)]


def ideal_s(seconds: Sequence[float]) -> float:
    """The least that any order can take."""
    return max(*seconds, sum(seconds) / (WORKERS * SLOTS))


def rollouts(seconds: Sequence[float]) -> LocalRollouts:
    """Rows of one token that sleep so long."""
    rows = len(seconds)
    return LocalRollouts(
        row_ids=np.arange(rows),
        group_ids=np.arange(rows),
        prompts=["p"] * rows,
        completion_ids=np.zeros((rows, 1), np.int32),
        end_token_ids=[fleet.END],
        pad_token_id=fleet.END,
        columns={"seconds": list(seconds)},
    )


def through_servers(clients: Sequence[RewardClient], seconds: Sequence[float]) -> None:
    """Scores an equal part of the rows through each server at the same time."""
    share = len(seconds) // len(clients)
    handles = [
        client.submit(rollouts(seconds[share * number : share * (number + 1)]))
        for number, client in enumerate(clients)
    ]
    for handle in handles:
        handle.result()


async def one_by_one(target: str, options: Sequence[tuple[str, str]], costs: list[float]) -> None:
    """Sends all rows at once, each as a call of its own, and lets gRPC or a proxy spread them."""
    async with grpc.aio.insecure_channel(target, [*CLIENT_OPTIONS, *options]) as channel:
        stub = scoring_pb2_grpc.ScoringServiceStub(channel)
        await asyncio.wait_for(channel.channel_ready(), 30)

        def call(number: int, seconds: float) -> Awaitable[scoring_pb2.ScoreResponse]:
            rows = types_pb2.RolloutBatch(
                completion_ids=b"\0\0\0\0",
                completion_lengths=[1],
                prompts=["p"],
                columns=[types_pb2.Column(name="seconds", double_values={"values": [seconds]})],
                row_ids=[number],
            )
            request_id = f"{time.monotonic_ns()}/{number}"
            request = scoring_pb2.ScoreRequest(request_id=request_id, rollouts=rows)
            answer: Awaitable[scoring_pb2.ScoreResponse] = stub.Score(request, timeout=120)
            return answer

        await asyncio.gather(*(call(number, cost) for number, cost in enumerate(costs)))


def measure(seeds: int) -> dict[str, object]:
    """Makespan over ideal of each way: median, least and most over the seeds."""
    with tempfile.TemporaryDirectory(prefix="shardward-tail-") as name:
        folder = Path(name)
        fleet.write_files(folder, "sleep")
        with (
            fleet.workers(folder, WORKERS, SLOTS) as addresses,
            fleet.servers(folder, SERVERS, ",".join(addresses)) as servers,
            fleet.haproxy(folder, addresses, SLOTS) as proxy,
        ):
            clients = [RewardClient(f"{server.address}", timeout_s=200) for server in servers]
            for client in clients:
                client.connect()
            ways: dict[str, Callable[[list[float]], None]] = {
                "Shardward, one server": lambda rows: through_servers(clients[:1], rows),
                f"Shardward, {SERVERS} servers": lambda rows: through_servers(clients, rows),
                "gRPC round_robin": lambda rows: asyncio.run(
                    one_by_one(f"ipv4:{','.join(addresses)}", [_ROUND_ROBIN], rows)
                ),
            }
            if proxy is not None:
                ways["HAProxy leastconn"] = lambda rows: asyncio.run(one_by_one(proxy, [], rows))
            ratios: dict[str, list[float]] = {way: [] for way in ways}
            for seed in range(seeds):
                rows = costs(seed)
                for way, run in ways.items():
                    start = time.perf_counter()
                    run(rows)
                    ratios[way].append((time.perf_counter() - start) / ideal_s(rows))
            for client in clients:
                client.close()
    greedy = [_greedy(costs(seed)) / ideal_s(costs(seed)) for seed in range(seeds)]
    ratios["least-loaded slot, without any overhead"] = greedy
    return {
        "rows": ROWS,
        "workers": WORKERS,
        "slots": SLOTS,
        "seeds": seeds,
        "makespan_over_ideal": {
            way: {
                "median": round(statistics.median(values), 3),
                "least": round(min(values), 3),
                "most": round(max(values), 3),
            }
            for way, values in ratios.items()
        },
    }


def _greedy(seconds: Sequence[float]) -> float:
    """Makespan if each row, in order, goes to the slot that is free first."""
    slots = [0.0] * (WORKERS * SLOTS)
    for cost in seconds:
        slots[slots.index(min(slots))] += cost
    return max(slots)


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7), indent=2))
