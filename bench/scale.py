# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""More workers, more servers, more training processes: what each adds. `make bench-scale`.

The reward function waits, as one that asks a judge does, so that workers and not the two cores of a
laptop are what is short. Writes bench/scale.json and docs/scale.png.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from bench import fleet, tail
from bench.trainers import Trainers, rollouts
from trainer import RewardClient

# A worker of one slot waits for 256 rows side by side: 64 rows a second each.
WAIT_S = 4.0
ROWS_PER_SLOT = 256
ROUNDS = 3
COUNTS = (1, 2, 4, 8, 16)
PROCESSES = 64
SERVERS = 4
SHARED_WORKERS = 8
SHARED_ROWS = 32
SHARED_WAIT_S = 0.5
SHARED_S = 40.0
OUT = fleet.ROOT / "bench" / "scale.json"
FIGURE = fleet.ROOT / "docs" / "scale.png"


def worker_counts(folder: Path) -> list[dict[str, float]]:
    """Rows a second and the server's CPU and memory with 1 to 16 workers."""
    out = []
    for count in COUNTS:
        with (
            fleet.workers(folder, count, 1) as addresses,
            fleet.servers(folder, 1, ",".join(addresses)) as servers,
        ):
            client = RewardClient(servers[0].address, timeout_s=280)
            _wait_for_workers(client, count)
            client.score(rollouts(0, count, 0.0))
            server = psutil.Process(servers[0].pid)
            before = sum(server.cpu_times()[:2])
            rows = ROWS_PER_SLOT * ROUNDS * count
            start = time.perf_counter()
            rewards = client.score(rollouts(0, rows, WAIT_S))
            seconds = time.perf_counter() - start
            if rewards is None or not rewards.valid.all():
                raise SystemExit("rows failed.")
            client.close()
            out.append(
                {
                    "workers": count,
                    "rows": rows,
                    "rows_per_s": rows / seconds,
                    "share_of_linear": ROUNDS * WAIT_S / seconds,
                    "server_cpu_ms_per_1000_rows": (sum(server.cpu_times()[:2]) - before)
                    / rows
                    * 1e6,
                    "server_cpu_share_of_a_core": (sum(server.cpu_times()[:2]) - before) / seconds,
                    "server_rss_mb": server.memory_info().rss / 2**20,
                }
            )
            print(out[-1], flush=True)
    return out


def _wait_for_workers(client: RewardClient, count: int) -> None:
    deadline = time.monotonic() + 60
    while client.connect().workers < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{count} workers must join within 60 s.")
        time.sleep(0.1)


def shared_workers(folder: Path) -> dict[str, Any]:
    """64 training processes on 4 servers that share 8 workers, all at full load."""
    per_server = PROCESSES // SERVERS
    with (
        fleet.workers(folder, SHARED_WORKERS, 1) as addresses,
        fleet.servers(folder, SERVERS, ",".join(addresses)) as servers,
    ):
        groups = [
            Trainers(
                server.address,
                first=number * per_server,
                count=per_server,
                rows=SHARED_ROWS,
                seconds=SHARED_WAIT_S,
                run_s=SHARED_S,
            )
            for number, server in enumerate(servers)
        ]
        for group in groups:
            group.ready()
        before = [sum(psutil.Process(server.pid).cpu_times()[:2]) for server in servers]
        start = time.perf_counter()
        for group in groups:
            group.go()
        results = [group.result() for group in groups]
        seconds = time.perf_counter() - start
        after = [sum(psutil.Process(server.pid).cpu_times()[:2]) for server in servers]
        memory = [psutil.Process(server.pid).memory_info().rss / 2**20 for server in servers]
    rows = [done for result in results for done, _ in result]
    by_server = [sum(done for done, _ in result) for result in results]
    return {
        "processes": PROCESSES,
        "servers": SERVERS,
        "workers": SHARED_WORKERS,
        "rows_a_call": SHARED_ROWS,
        "wait_s": SHARED_WAIT_S,
        "seconds": SHARED_S,
        "rows_done": sum(rows),
        "rows_failed": sum(failed for result in results for _, failed in result),
        "rows_by_process": rows,
        "rows_by_server": by_server,
        "most_over_least_of_processes": max(rows) / max(1, min(rows)),
        "most_over_least_of_servers": max(by_server) / max(1, min(by_server)),
        "jain_index_of_processes": sum(rows) ** 2 / (len(rows) * sum(n * n for n in rows)),
        "server_cpu_share_of_a_core": [
            (b - a) / seconds for a, b in zip(before, after, strict=True)
        ],
        "server_rss_mb": memory,
    }


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws the three measurements side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), constrained_layout=True)
    counts = results["worker_counts"]
    x = [point["workers"] for point in counts]
    linear = ROWS_PER_SLOT / WAIT_S
    axes[0].plot(x, [linear * n for n in x], "--", color="0.6", label="linear")
    axes[0].plot(x, [point["rows_per_s"] for point in counts], "o-", label="measured")
    for point in counts:
        axes[0].annotate(
            f"{point['share_of_linear']:.2f}",
            (point["workers"], point["rows_per_s"]),
            textcoords="offset points",
            xytext=(6, -12),
        )
    axes[0].set(
        xscale="log",
        xlim=(0.85, 26),
        yscale="log",
        xlabel="worker processes",
        ylabel="rows a second",
        title=f"Rows that wait {WAIT_S:g} s; share of linear",
    )
    axes[0].set_xticks(x, [str(n) for n in x])
    axes[0].minorticks_off()
    axes[0].legend()
    ratios = results["tail"]["makespan_over_ideal"]
    names = list(ratios)
    for row, name in enumerate(names):
        point = ratios[name]
        axes[1].plot([point["least"], point["most"]], [row, row], color="C0", alpha=0.4, lw=5)
        axes[1].plot([point["median"]], [row], "o", color="C0")
        axes[1].annotate(
            f"{point['median']:.2f}",
            (point["median"], row),
            textcoords="offset points",
            xytext=(0, 9),
            ha="center",
        )
    labels = [name.replace(", ", ",\n") for name in names]
    axes[1].set_yticks(range(len(names)), labels)
    axes[1].set(
        ylim=(len(names) - 0.5, -0.7),
        xlabel="makespan / ideal: median, least to most",
        title=f"{tail.ROWS} heavy-tailed rows, {tail.WORKERS} workers x {tail.SLOTS} slots",
    )
    shared = results["shared"]
    rows = shared["rows_by_process"]
    size = len(rows) // shared["servers"]
    for number in range(shared["servers"]):
        part = range(number * size, (number + 1) * size)
        axes[2].bar(part, [rows[n] for n in part], label=f"server {number}")
    axes[2].set(
        xlabel="training process",
        ylabel=f"rows in {shared['seconds']:g} s",
        title=f"{len(rows)} processes, {shared['servers']} servers, {shared['workers']} workers",
        ylim=(0, 1.3 * max(rows)),
    )
    axes[2].legend(loc="upper center", ncols=2)
    figure.savefig(path, dpi=110)


def main(only: Sequence[str]) -> None:
    """Runs what is named, or everything; keeps the other results of the last run."""
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    with tempfile.TemporaryDirectory(prefix="shardward-scale-") as name:
        folder = Path(name)
        fleet.write_files(folder, "wait")
        if not only or "workers" in only:
            results["worker_counts"] = worker_counts(folder)
        if not only or "shared" in only:
            results["shared"] = shared_workers(folder)
    if not only or "tail" in only:
        results["tail"] = tail.measure(9)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    draw(results, FIGURE)
    print(json.dumps(results, indent=2))
    print(f"wrote {OUT.relative_to(fleet.ROOT)} and {FIGURE.relative_to(fleet.ROOT)}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
