# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What an exchange of many processes costs: time beside a bare barrier, memory of the service.

The coordination service is JAX's own, in this process. Its clients are threads of a child: they
share the cores with each other and with the service, so that seconds are an upper bound.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
from jax._src.lib import _jax

from trainer.agreement import Agreement
from trainer.coordination import Coordination

PROCESSES = (2, 32, 256)
EXCHANGES = 2000
# Rounds of barriers and of exchanges take turns, so that both see the same machine.
_ROUNDS, _EACH = 5, 10
_TIMEOUT_S = 300.0
_VALUE = {"rows": 512, "length": 412, "shards": [3], "stop": "", "digest": "0123456789abcdef"}


def measure(processes: int, exchanges: int) -> dict[str, float]:
    """Measures exchanges of some processes.

    Args:
        processes: clients of the service.
        exchanges: how many must leave the service's memory as it was.

    Returns:
        Milliseconds of an exchange and of a barrier, and bytes that the service grew by for each
        of the exchanges in the second half.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = _jax.get_distributed_runtime_service(address, processes)
    command = [sys.executable, "-m", "bench.agreement", "--clients", address]
    command += [str(processes), str(exchanges)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        times = json.loads(child.stdout.readline())
        sizes = []
        for _ in range(2):
            child.stdin.write("go\n")
            child.stdin.flush()
            child.stdout.readline()
            sizes.append(psutil.Process().memory_info().rss)
        child.stdin.write("end\n")
        child.stdin.flush()
    service.shutdown()
    return {
        "processes": processes,
        **times,
        "service_bytes": (sizes[1] - sizes[0]) / (exchanges // 2),
    }


def _everywhere(processes: int, call: Callable[[int], Any], times: int) -> float:
    """Seconds of a call that all clients make so often."""

    def run(process: int) -> None:
        for _ in range(times):
            call(process)

    threads = [threading.Thread(target=run, args=(p,)) for p in range(processes)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / times


def _clients(address: str, processes: int, exchanges: int) -> None:
    clients: list[Any] = [None] * processes
    agreements: list[Any] = [None] * processes

    def connect(process: int) -> None:
        client = clients[process] = _jax.get_distributed_runtime_client(
            address, process, init_timeout=120, use_compression=True
        )
        client.connect()
        job = Coordination(client, process, processes)
        agreements[process] = Agreement(timeout_s=_TIMEOUT_S, job=job)

    def exchange(process: int) -> None:
        agreements[process].exchange("train batch", _VALUE, len)

    def barrier(process: int) -> None:
        clients[process].wait_at_barrier("bare", int(_TIMEOUT_S * 1000))

    calls = {"barrier_ms": barrier, "exchange_ms": exchange}
    for call in (connect, *calls.values()):
        _everywhere(processes, call, 1)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            seconds[name].append(_everywhere(processes, call, _EACH))
    print(json.dumps({n: 1e3 * statistics.median(s) for n, s in seconds.items()}), flush=True)
    while sys.stdin.readline() == "go\n":
        _everywhere(processes, exchange, exchanges // 2)
        print("done", flush=True)
    # Their own end is a barrier, too.
    os._exit(0)


def main() -> None:
    """Prints a line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs=3, metavar=("ADDRESS", "PROCESSES", "EXCHANGES"))
    clients = parser.parse_args().clients
    if clients:
        _clients(clients[0], int(clients[1]), int(clients[2]))
    for processes in PROCESSES:
        print(line(measure(processes, EXCHANGES)))


def line(figures: dict[str, float]) -> str:
    """One measurement in words."""
    return (
        f"{figures['processes']:4.0f} processes: exchange {figures['exchange_ms']:.1f} ms,"
        f" {figures['exchange_ms'] / figures['barrier_ms']:.2f} of a barrier"
        f" ({figures['barrier_ms']:.1f} ms), service {figures['service_bytes']:+.0f} B an exchange"
    )


if __name__ == "__main__":
    main()
