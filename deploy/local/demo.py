# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`make demo`: trains a recipe on "nodes" of this machine, and says what came of it.

Example: python -m deploy.local.demo --processes 2 --recipe tiny --out runs/demo
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.local.launch import run_trainers
from deploy.local.nodes import Node, RewardFiles, make_nodes, rows_scored, start_servers
from deploy.local.processes import Failed, Processes, Stopped
from trainer import recipes
from trainer.recipes.recipe import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.recipes.recipe import Recipe

CONFIG = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """What to train, on how many "nodes".

    Attributes:
        processes: number of trainer processes, one per "node".
        recipe: name of a recipe.
        task: task of the recipe; None takes the recipe's.
        lora_rank: rank of LoRA matrices to train; 0 trains all weights, None takes the recipe's.
        out: folder for the results.
        steps: training steps; None takes the recipe's.
        devices_per_process: CPU devices of each trainer; None takes the recipe's.
        timeout: longest time for training, in seconds.
    """

    processes: int = 2
    recipe: str = "tiny"
    task: str | None = None
    lora_rank: int | None = None
    out: Path = Path("runs/demo")
    steps: int | None = None
    devices_per_process: int | None = None
    timeout: float = 3600.0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the flag, the rule and the value.
        """
        self.load_recipe()
        for name in ("processes", "steps", "devices_per_process"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be >= 1, got {value}.")
        if not self.timeout > 0:
            raise ValueError(f"--timeout must be > 0, got {self.timeout}.")

    def load_recipe(self) -> Recipe:
        """Loads the recipe with its options."""
        return recipes.load(self.recipe, task=self.task, lora_rank=self.lora_rank)


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


def devices_per_process(config: DemoConfig, recipe: Recipe) -> int:
    """CPU devices of each trainer: as asked for, or the recipe's mesh split evenly."""
    total = math.prod(size for _, size in recipe.settings.axes)
    return config.devices_per_process or max(1, total // config.processes)


def trainer_command(config: DemoConfig, mesh: dict[str, int], steps: int) -> list[str]:
    """The command line of a trainer, with the places that differ from node to node."""
    options = {"--task": config.task, "--lora-rank": config.lora_rank}
    return [
        *(sys.executable, "-m", "trainer.cli", "--reward-endpoint", "{endpoint}"),
        *("--recipe", config.recipe, "--steps", str(steps)),
        *("--mesh", ",".join(f"{axis}={size}" for axis, size in mesh.items())),
        *("--out", str(config.out), "--coordinator", "{coordinator}"),
        *("--num-processes", "{nodes}", "--process-id", "{node}"),
        *(part for flag, x in options.items() if x is not None for part in (flag, str(x))),
    ]


def summarise(
    config: DemoConfig, recipe: Recipe, rows: list[int], *, wall_s: float
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


def run(config: DemoConfig) -> None:
    """Runs the whole job and writes summary.json and reward.png.

    Raises:
        Failed: a process failed or took too long.
        Stopped: a signal came.
        RecipeError: the recipe's files can't be made.
    """
    from deploy.local import plot  # noqa: PLC0415 - a missing matplotlib shows before training

    start = time.monotonic()
    recipe = config.load_recipe()
    recipe.prepare()
    steps = config.steps or recipe.settings.steps
    devices = devices_per_process(config, recipe)
    mesh = mesh_for(recipe, devices * config.processes)
    config.out.mkdir(parents=True, exist_ok=True)
    (config.out / "train.json").unlink(missing_ok=True)
    files = RewardFiles(tokenizer=recipe.tokenizer_dir, rewards=recipe.rewards_file)
    with tempfile.TemporaryDirectory(prefix="shardward-") as folder, Processes() as processes:
        nodes = make_nodes(folder, nodes=config.processes, workers=1)
        print(f"starting {config.processes} reward servers with a worker each", flush=True)
        start_servers(processes, nodes, files)
        print(f"starting {config.processes} trainers: {steps} steps", flush=True)
        run_trainers(
            processes,
            nodes,
            trainer_command(config, mesh, steps),
            devices=devices,
            timeout_s=config.timeout,
            grace_s=3.0,
            terminal=True,
        )
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
    """Makes the parser: one flag for each field of `DemoConfig`."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.demo",
        description="Trains a recipe on nodes that this machine plays.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--processes", type=int, default=2, metavar="N", help="trainers (default: 2)")
    add("--recipe", choices=recipes.NAMES, default="tiny", help="what to train (default: tiny)")
    add("--task", metavar="NAME", help="task of reasoning-gym, for smollm2 (default: the recipe's)")
    add(
        "--lora-rank",
        type=int,
        metavar="R",
        help="train LoRA matrices of this rank; 0 trains all weights (default: the recipe's)",
    )
    add(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="folder for results (default: %(default)s)",
    )
    add("--steps", type=int, metavar="N", help="training steps (default: the recipe's)")
    add("--devices-per-process", type=int, metavar="K", help="CPU devices (default: the recipe's)")
    add(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="S",
        help="longest time for the training in seconds (default: %(default)g)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        The exit code: 0, or that of the first process that failed.
    """
    parser = make_parser()
    try:
        config = DemoConfig(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        parser.error(str(error))
    try:
        run(config)
    except RecipeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return CONFIG
    except (Failed, Stopped) as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        # A full disk: the training goes on without its files, and they are missing here.
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
