# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a multi-node job on one machine: for each node a reward server and your training script.

In the command, {endpoint} stands for the reward server of the node, {coordinator} for the address
of process 0, {nodes} for their number and {node} for the number of this one.

Example:
    python -m deploy.local.launch --nodes 2 --tokenizer DIR --rewards rewards.toml -- \
        python grpo.py --endpoint {endpoint} --coordinator {coordinator} \
        --num-processes {nodes} --process-id {node}
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.local.nodes import Node, RewardFiles, free_port, make_nodes, start_servers
from deploy.local.processes import Child, Failed, Processes, Stopped

# Between SIGTERM and SIGKILL: a training that can stop with a checkpoint may take a step for it.
GRACE_S = 60.0
PLACES = ("endpoint", "coordinator", "nodes", "node")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """What to launch.

    Attributes:
        command: the training script and its arguments, with places in braces.
        tokenizer: tokenizer.json or its folder.
        rewards: TOML file of reward functions.
        nodes: "nodes" to play.
        workers: reward workers of each node; 0: its server runs the functions itself.
        slots: child processes of each worker, or of each server without workers.
        cpu_devices: CPU devices of each process; None leaves JAX its platform.
        timeout: longest time for the training, in seconds; None: no bound.
        grace: seconds that the command has to end after SIGTERM.
    """

    command: tuple[str, ...]
    tokenizer: Path
    rewards: Path
    nodes: int = 2
    workers: int = 0
    slots: int = 1
    cpu_devices: int | None = None
    timeout: float | None = None
    grace: float = GRACE_S

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the flag, the rule and the value.
        """
        if not self.command:
            raise ValueError("a command must follow --, like: -- python grpo.py {endpoint}.")
        for name, least in (("nodes", 1), ("workers", 0), ("slots", 1), ("cpu_devices", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be >= {least}, got {value}.")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"--timeout must be > 0 seconds, got {self.timeout}.")
        if not self.grace >= 0:
            raise ValueError(f"--grace must be >= 0 seconds, got {self.grace}.")
        for name in ("tokenizer", "rewards"):
            if not getattr(self, name).exists():
                raise ValueError(f"--{name} must exist, got {getattr(self, name)}.")
        if not any("{endpoint}" in part for part in self.command):
            raise ValueError(
                "the command must have {endpoint} where the reward server's address belongs."
            )
        if self.nodes > 1 and not any("{node}" in part for part in self.command):
            raise ValueError("the command must have {node}, the number of its process.")


def fill(command: Sequence[str], values: dict[str, str]) -> list[str]:
    """Puts values into the places of a command; other braces stay as they are.

    Example:
        >>> fill(["--to", "{endpoint}", "{x}"], {"endpoint": "unix:/a"})
        ['--to', 'unix:/a', '{x}']
    """
    places = re.compile("{(" + "|".join(PLACES) + ")}")
    return [places.sub(lambda found: values[found[1]], part) for part in command]


def run_trainers(
    processes: Processes,
    nodes: list[Node],
    command: Sequence[str],
    *,
    devices: int | None,
    timeout_s: float | None,
    grace_s: float,
    terminal: bool = False,
) -> None:
    """Starts the command for each node; returns when all ended well.

    Args:
        processes: what it is started in.
        nodes: of the job.
        command: with places in braces.
        devices: CPU devices of each process, or None.
        timeout_s: longest time, or None.
        grace_s: seconds between SIGTERM and SIGKILL when they are stopped.
        terminal: let node 0 write to the terminal, for a progress bar.

    Raises:
        Failed: a process failed, or the time ran out.
    """
    environment = {}
    if devices is not None:
        environment["JAX_PLATFORMS"] = "cpu"
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    coordinator = f"127.0.0.1:{free_port()}"
    trainers = []
    for node in nodes:
        values = {
            "endpoint": node.server,
            "coordinator": coordinator,
            "nodes": str(len(nodes)),
            "node": str(node.index),
        }
        trainers.append(
            processes.start(
                f"node{node.index} trainer",
                fill(command, values),
                environment=environment,
                grace_s=grace_s,
                terminal=terminal and node.index == 0,
            )
        )

    def running() -> list[str]:
        return [trainer.name for trainer in trainers if _runs(trainer)]

    # The training says itself how it goes.
    processes.wait(running, timeout_s=timeout_s, what="training", notice=False)
    processes.check()


def _runs(child: Child) -> bool:
    return child.process.poll() is None


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser: one flag for each field of `LaunchConfig` but the command."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.launch",
        usage="%(prog)s [options] -- COMMAND",
        description="Plays a multi-node job on this machine: a reward server and COMMAND for each"
        " node. In COMMAND, {endpoint}, {coordinator}, {nodes} and {node} are replaced.",
        epilog="The exit code is that of the first process that fails; Ctrl-C stops"
        " the commands by SIGTERM, and the servers when those have ended.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--tokenizer", type=Path, required=True, metavar="PATH", help="tokenizer.json or folder")
    add("--rewards", type=Path, required=True, metavar="FILE", help="TOML of reward functions")
    add("--nodes", type=int, default=2, metavar="N", help="nodes to play (default: 2)")
    add(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="reward workers of each node (default: 0, the server runs the functions itself)",
    )
    add("--slots", type=int, default=1, metavar="N", help="child processes of each (default: 1)")
    add("--cpu-devices", type=int, metavar="K", help="train on K CPU devices in each process")
    add("--timeout", type=float, metavar="S", help="longest time for the training in seconds")
    add(
        "--grace",
        type=float,
        default=GRACE_S,
        metavar="S",
        help="seconds that the commands have to end after SIGTERM, with a last checkpoint"
        " (default: %(default)g)",
    )
    return parser


def parse(arguments: Sequence[str]) -> LaunchConfig:
    """Reads the command line; a wrong one ends the program with code 2."""
    parser = make_parser()
    cut = list(arguments).index("--") if "--" in arguments else len(arguments)
    flags = parser.parse_args(arguments[:cut])
    try:
        return LaunchConfig(command=tuple(arguments[cut + 1 :]), **vars(flags))
    except ValueError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        The exit code: 0, or that of the first process that failed.
    """
    config = parse(sys.argv[1:] if arguments is None else arguments)
    files = RewardFiles(tokenizer=config.tokenizer, rewards=config.rewards, slots=config.slots)
    try:
        with tempfile.TemporaryDirectory(prefix="shardward-") as folder, Processes() as processes:
            nodes = make_nodes(folder, nodes=config.nodes, workers=config.workers)
            start_servers(processes, nodes, files)
            run_trainers(
                processes,
                nodes,
                config.command,
                devices=config.cpu_devices,
                timeout_s=config.timeout,
                grace_s=config.grace,
            )
    except (Failed, Stopped) as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
