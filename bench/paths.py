# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the reward paths side by side. `make bench-paths`.

Real JAX processes, a reward server for each, four devices in all. A step here is sampling,
reference log-probabilities, rewards and the advantage of a two-layer model; the rewards take as
long as the log-probabilities do alone, without the CPU, for the rows of one process.

Bytes between processes are those that processes receive from each other, added up: what the
collectives of the compiled programs say (their shapes, from the HLO), what `process_allgather`
returned, and the JSON that the processes agree by. What goes to reward servers stays on the node.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.path_worker import PATHS

ROOT = Path(__file__).parents[1]
ROWS, REPEATS, LIMIT_S = 64, 5, 900
COUNTS = tuple(int(n) for n in sys.argv[1:]) or (1, 2, 4)


def run(count: int, folder: Path) -> list[dict[str, Any]]:
    """Starts processes and their servers and returns what each process wrote."""
    from trainer import RewardClient, recipes

    rewards = folder / "rewards.toml"
    probe = "probe = {columns = {pause_s = 0.0}}"
    file = ROOT / "bench" / "path_worker.py"
    rewards.write_text(f'[[reward]]\nfn = "{file}:pausing"\ntimeout_s = 60.0\n{probe}\n')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    endpoints = [f"unix:{folder}/{count}-{i}" for i in range(count)]
    plan = {
        "endpoints": endpoints,
        "coordinator": coordinator,
        "rows": ROWS,
        "repeats": REPEATS,
        "out": str(folder),
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    started = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", *args], cwd=ROOT)
        started.append(process)
        return process

    try:
        for endpoint in endpoints:
            start(
                *("reward_server", "serve", "--listen", endpoint, "--slots", "1"),
                *("--tokenizer", str(recipes.load("tiny").tokenizer_dir)),
                *("--rewards", str(rewards), "--log-level", "WARNING"),
            )
        for endpoint in endpoints:
            client = RewardClient(endpoint, connect_timeout_s=120)
            client.connect()
            client.close()
        trainers = [
            start("bench.path_worker", str(folder / "plan.json"), str(i), str(count))
            for i in range(count)
        ]
        for trainer in trainers:
            if trainer.wait(LIMIT_S):
                raise SystemExit(f"a process of {count} ended with {trainer.returncode}")
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
    return [json.loads((folder / f"paths-{i}.json").read_text()) for i in range(count)]


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins what the processes saw: the slowest process counts, bytes and rows add up.

    Steps are the best of their kind, waits the median.
    """
    alone = {key: max(r["alone"][key] for r in results) for key in results[0]["alone"]}
    reward_s = results[0]["reward_s"]
    floor_s = alone["sample_s"] + max(alone["logps_s"], reward_s)
    rows = {}
    for name in PATHS:
        here = [r["paths"][name] for r in results]
        rows[name] = {
            "step_s": max(min(r["steps_s"]) for r in here),
            "step_over_floor": max(min(r["steps_s"]) for r in here) / floor_s,
            "quick_step_s": max(min(r["quick_s"]) for r in here),
            "visible_wait_share": max(statistics.median(r["waits_s"]) for r in here) / reward_s,
            "bytes_collectives": here[0]["hlo_bytes"],
            "bytes_gathered": here[0]["gathered_bytes"],
            "bytes_agreed": sum(r["agreed_bytes"] for r in here),
            "rows_scored": sum(r["rows_here"] + r["rows_server"] for r in here),
        }
    return {"reward_s": reward_s, "floor_s": floor_s, **alone, "paths": rows}


def main() -> None:
    """Measures, prints a table and writes bench/paths.json."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    out: dict[str, Any] = {"rows": ROWS, "cores": os.cpu_count(), "processes": {}}
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            out["processes"][count] = summary = summarize(run(count, Path(folder)))
        print(
            f"\n{count} processes: sampling {summary['sample_s']:.3f} s, log-probabilities"
            f" {summary['logps_s']:.3f} s (their call returns after"
            f" {summary['logps_returned_s']:.3f} s), rewards {summary['reward_s']:.3f} s"
        )
        print(
            f"{'path':<24}{'step / floor':>13}{'quick step s':>13}{'wait / reward':>14}"
            f"{'bytes HLO':>11}{'gathered':>10}{'agreed':>8}{'scored':>8}"
        )
        for name, row in summary["paths"].items():
            print(
                f"{name:<24}{row['step_over_floor']:>13.2f}{row['quick_step_s']:>13.3f}"
                f"{row['visible_wait_share']:>14.2f}{row['bytes_collectives']:>11}"
                f"{row['bytes_gathered']:>10}{row['bytes_agreed']:>8}{row['rows_scored']:>8}",
                flush=True,
            )
    (ROOT / "bench" / "paths.json").write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
