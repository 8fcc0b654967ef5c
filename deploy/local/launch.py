# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a multi-node job on one machine: for each node a worker, a reward server and a trainer.

Example: python -m deploy.local.launch --processes 2 --recipe tiny --out runs/demo
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc

from deploy.local.processes import Child, Failed, Processes, Stopped
from trainer import recipes
from trainer.recipes.recipe import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.recipes.recipe import Recipe

SERVER_START_S = 180.0
TRAINER_GRACE_S = 3.0
USAGE, CONFIG = 2, 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """What to launch.

    Attributes:
        processes: number of trainer processes, one per "node".
        recipe: name of a recipe.
        out: folder for the results.
        steps: training steps; None takes the recipe's.
        devices_per_process: CPU devices of each trainer; None takes the recipe's.
        timeout: longest time for training, in seconds.
    """

    processes: int = 2
    recipe: str = "tiny"
    out: Path = Path("runs/demo")
    steps: int | None = None
    devices_per_process: int | None = None
    timeout: float = 3600.0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the flag, the rule and the value.
        """
        for name in ("processes", "steps", "devices_per_process"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be >= 1, got {value}.")
        if not self.timeout > 0:
            raise ValueError(f"--timeout must be > 0, got {self.timeout}.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one "node" runs besides its trainer.

    Attributes:
        index: number of the node.
        worker: address of its reward worker.
        server: address of its reward server.
    """

    index: int
    worker: str
    server: str


def mesh_for(recipe: Recipe, devices: int) -> dict[str, int]:
    """Fits the recipe's mesh to the number of devices: tp as the recipe has it, the rest on fsdp.

    Example:
        >>> mesh_for(recipes.load("tiny"), 4)
        {'fsdp': 2, 'tp': 2}
    """
    tp = dict(recipe.settings.axes).get("tp", 1)
    if devices % tp:
        tp = 1
    return {"fsdp": devices // tp, "tp": tp}


def devices_per_process(config: LaunchConfig, recipe: Recipe) -> int:
    """CPU devices of each trainer: as asked for, or the recipe's mesh split evenly."""
    total = math.prod(size for _, size in recipe.settings.axes)
    return config.devices_per_process or max(1, total // config.processes)


def free_port() -> int:
    """Finds a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def start_servers(processes: Processes, nodes: list[Node], recipe: Recipe) -> None:
    """Starts a worker with one slot and a server for each node; returns when all are ready."""
    files = ("--tokenizer", str(recipe.tokenizer_dir), "--rewards", str(recipe.rewards_file))
    for node in nodes:
        address = ("--listen", node.worker, "--slots", "1")
        processes.start(f"node{node.index} worker", "reward_server", "worker", *address, *files)
    for node in nodes:
        address = ("--listen", node.server, "--workers", node.worker)
        processes.start(f"node{node.index} server", "reward_server", "serve", *address, *files)
    waiting = list(nodes)

    def not_ready() -> list[str]:
        while waiting and is_ready(waiting[0].server):
            waiting.pop(0)
        return [f"node{node.index} server" for node in waiting]

    processes.wait(not_ready, timeout_s=SERVER_START_S, what="reward servers")


def is_ready(address: str) -> bool:
    """Asks a reward server whether it is ready, as a user would."""
    command = [sys.executable, "-m", "reward_server", "check", address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def train(
    processes: Processes,
    nodes: list[Node],
    config: LaunchConfig,
    mesh: dict[str, int],
    *,
    devices: int,
    steps: int,
) -> None:
    """Starts a trainer for each node; returns when all ended well."""
    coordinator = f"127.0.0.1:{free_port()}"
    environment = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    trainers = [
        processes.start(
            f"node{node.index} trainer",
            "trainer.cli",
            *("--reward-endpoint", node.server, "--recipe", config.recipe, "--steps", str(steps)),
            *("--mesh", ",".join(f"{axis}={size}" for axis, size in mesh.items())),
            *("--out", str(config.out), "--coordinator", coordinator),
            *("--num-processes", str(config.processes), "--process-id", str(node.index)),
            environment=environment,
            grace_s=TRAINER_GRACE_S,
            terminal=node.index == 0,
        )
        for node in nodes
    ]

    def running() -> list[str]:
        return [trainer.name for trainer in trainers if _runs(trainer)]

    # The progress bar says how it goes.
    processes.wait(running, timeout_s=config.timeout, what="training", notice=False)
    processes.check()


def _runs(child: Child) -> bool:
    return child.process.poll() is None


def rows_scored(address: str) -> int:
    """Asks a reward server how many rows it has scored."""
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        response = stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest(), timeout=10)
        rows: int = response.info.rows_scored
        return rows


def summarise(
    config: LaunchConfig, recipe: Recipe, rows: list[int], *, wall_s: float
) -> dict[str, Any]:
    """Joins what the trainer wrote with what the servers counted."""
    trained = json.loads((config.out / "train.json").read_text(encoding="utf-8"))
    settings = recipe.settings
    return {
        "recipe": recipe.name,
        "processes": config.processes,
        "mesh": trained["mesh"],
        "steps": trained["steps"],
        "rows_expected": trained["steps"] * settings.prompts_per_step * settings.num_generations,
        "rows_scored_per_server": rows,
        "rows_failed": trained["rows_failed"],
        "reward_mean_first": trained["reward_first"],
        "reward_mean_last": trained["reward_last"],
        "accuracy_before": trained["accuracy_before"],
        "accuracy_after": trained["accuracy_after"],
        "wall_s": round(wall_s, 1),
        "train_s": round(trained["wall_s"], 1),
        "reward_wait_s": round(trained["reward_wait_s"], 3),
    }


def print_table(summary: dict[str, Any], nodes: list[Node]) -> None:
    """Prints the summary for people."""
    mesh = " ".join(f"{axis}={size}" for axis, size in summary["mesh"].items())
    rows = summary["rows_scored_per_server"]
    table = [
        ("processes", f"{summary['processes']} (mesh {mesh})"),
        ("steps", f"{summary['steps']} in {summary['train_s']} s, all {summary['wall_s']} s"),
        *((f"rows scored, node {n.index}", str(rows[n.index])) for n in nodes),
        ("rows scored / expected", f"{sum(rows)} / {summary['rows_expected']}"),
        (
            "reward, first and last steps",
            f"{summary['reward_mean_first']:.3f} -> {summary['reward_mean_last']:.3f}",
        ),
    ]
    if summary["accuracy_before"] is not None:
        before, after = summary["accuracy_before"], summary["accuracy_after"]
        table.append(("accuracy before and after", f"{before:.3f} -> {after:.3f}"))
    table.append(("waited for rewards", f"{summary['reward_wait_s']} s"))
    width = max(len(name) for name, _ in table)
    print()
    for name, value in table:
        print(f"{name:<{width}}  {value}")


def launch(config: LaunchConfig) -> None:
    """Runs the whole job and writes summary.json and reward.png.

    Raises:
        Failed: a process failed or took too long.
        Stopped: a signal came.
        RecipeError: the recipe's files can't be made.
    """
    from deploy.local import plot  # noqa: PLC0415 - a missing matplotlib shows before training

    start = time.monotonic()
    recipe = recipes.load(config.recipe)
    recipe.prepare()
    steps = config.steps or recipe.settings.steps
    devices = devices_per_process(config, recipe)
    mesh = mesh_for(recipe, devices * config.processes)
    config.out.mkdir(parents=True, exist_ok=True)
    (config.out / "train.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="shardward-") as folder, Processes() as processes:
        nodes = [
            Node(index=i, worker=f"unix:{folder}/worker{i}", server=f"unix:{folder}/server{i}")
            for i in range(config.processes)
        ]
        print(f"starting {config.processes} reward servers with a worker each", flush=True)
        start_servers(processes, nodes, recipe)
        print(f"starting {config.processes} trainers: {steps} steps", flush=True)
        train(processes, nodes, config, mesh, devices=devices, steps=steps)
        rows = [rows_scored(node.server) for node in nodes]
    summary = summarise(config, recipe, rows, wall_s=time.monotonic() - start)
    text = json.dumps(summary, indent=2) + "\n"
    (config.out / "summary.json").write_text(text, encoding="utf-8")
    plot.draw(config.out / "metrics.jsonl", summary, config.out / "reward.png")
    print_table(summary, nodes)
    print(f"\nwritten: {config.out}/summary.json, reward.png, metrics.jsonl")
    if sum(rows) != summary["rows_expected"]:
        raise Failed(f"{sum(rows)} rows were scored, {summary['rows_expected']} expected.")


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser: one flag for each field of `LaunchConfig`."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.launch",
        description="Plays a multi-node GRPO job on this machine.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--processes", type=int, default=2, metavar="N", help="trainers (default: 2)")
    add("--recipe", choices=recipes.NAMES, default="tiny", help="what to train (default: tiny)")
    add("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="folder for results")
    add("--steps", type=int, metavar="N", help="training steps (default: the recipe's)")
    add("--devices-per-process", type=int, metavar="K", help="CPU devices (default: the recipe's)")
    add("--timeout", type=float, default=3600.0, metavar="S", help="bound for training, seconds")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        The exit code: 0, or that of the first process that failed.
    """
    parser = make_parser()
    try:
        config = LaunchConfig(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        parser.error(str(error))
    try:
        launch(config)
    except RecipeError as error:
        print(f"launch: {error}", file=sys.stderr)
        return CONFIG
    except (Failed, Stopped) as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
