# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of `grpo-train`, in groups: one for each field of `RunConfig`. No JAX."""

from __future__ import annotations

import argparse
import importlib.metadata
import signal
import textwrap
from pathlib import Path

from trainer import recipes
from trainer.run_config import ALGORITHMS, parse_mesh

OK, FAILED, USAGE, CONFIG, UNREACHABLE = 0, 1, 2, 3, 4
INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM

_EXIT_CODES = {
    OK: "ok",
    FAILED: "training failed",
    USAGE: "wrong flags",
    CONFIG: "a file or setting can't be used",
    UNREACHABLE: "the reward server does not answer",
    INTERRUPTED: "interrupted",
    TERMINATED: "stopped by SIGTERM",
}
_EPILOG = """\
Example, both in one shell:
  reward-server serve $(grpo-train --recipe tiny --print-server-flags) &
  grpo-train --recipe tiny --steps 20 --reward-endpoint unix:/tmp/reward.sock
"""


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser: one flag for each field of `RunConfig`, and those that only print."""
    codes = ", ".join(f"{code} {text}" for code, text in _EXIT_CODES.items())
    parser = argparse.ArgumentParser(
        prog="grpo-train",
        description="Trains a recipe by GRPO or a relative with rewards from a reward server.\n"
        "Start one for each process of the job.",
        epilog=f"{_EPILOG}\n{textwrap.fill(f'Exit codes: {codes}.', 79)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"shardward {_version()}", help="show the version"
    )
    _add_training(parser.add_argument_group("what to train"))
    _add_rewards(parser.add_argument_group("rewards"))
    _add_missing_rewards(parser.add_argument_group("missing rewards"))
    _add_credentials(parser.add_argument_group("credentials for the reward server"))
    _add_results(parser.add_argument_group("results and checkpoints"))
    _add_job(
        parser.add_argument_group(
            "processes of the job",
            "JAX finds them from Slurm or Kubernetes by itself; elsewhere pass the first three.",
        )
    )
    return parser


def _add_training(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--recipe",
        required=True,
        choices=recipes.NAMES,
        help="model, task and settings",
    )
    add(
        "--algorithm",
        default="grpo",
        metavar="NAME",
        help=f"one of {', '.join(ALGORITHMS)} (default: %(default)s)",
    )
    add("--task", metavar="NAME", help="task of reasoning-gym, for smollm2 (default: the recipe's)")
    add(
        "--lora-rank",
        type=int,
        metavar="R",
        help="train LoRA matrices of this rank; 0 trains all weights (default: the recipe's)",
    )
    add("--steps", type=int, metavar="N", help="training steps (default: the recipe's)")
    add(
        "--mesh",
        type=_mesh,
        metavar="AXES",
        help="device mesh, like fsdp=2,tp=2 (default: all devices on fsdp)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides weights, problems and samples (default: %(default)g)",
    )


def _add_rewards(group: argparse._ArgumentGroup) -> None:
    one_of = group.add_mutually_exclusive_group(required=True)
    one_of.add_argument(
        "--reward-endpoint",
        metavar="ADDR",
        help="reward server of this process: unix:PATH or HOST:PORT",
    )
    one_of.add_argument(
        "--print-server-flags",
        action="store_true",
        help="print the recipe's tokenizer and rewards file as flags of reward-server, and end",
    )
    add = group.add_argument
    add(
        "--reward-start-timeout",
        type=float,
        default=180.0,
        metavar="S",
        help="seconds that the reward server has to be ready (default: %(default)g)",
    )
    add(
        "--reward-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="longest wait for the rewards of a batch in seconds (default: %(default)g)",
    )
    add(
        "--reward-path",
        default="grpc",
        metavar="PATH",
        help="how rows get to the server: grpc, from the host; callback, from a JAX operation"
        " (default: %(default)s)",
    )


def _add_missing_rewards(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--on-failed-row",
        default="mask",
        metavar="RULE",
        help="a row without a reward: mask (advantage 0), value=X or abort (default: %(default)s)",
    )
    add(
        "--max-failed-fraction",
        type=float,
        default=0.25,
        metavar="F",
        help="share of failed rows in a step above which the run ends (default: %(default)g)",
    )
    add(
        "--on-reward-outage",
        default="stop",
        metavar="RULE",
        help="no rewards from a server in --reward-timeout: stop, or wait and send the same rows"
        " again (default: %(default)s)",
    )
    add(
        "--outage-timeout",
        type=float,
        default=3600.0,
        metavar="S",
        help="longest wait in such an outage in seconds; then the run ends (default: %(default)g)",
    )


def _add_credentials(group: argparse._ArgumentGroup) -> None:
    for name, text in (
        ("tls-ca", "CA that signed its certificate, PEM; turns TLS on"),
        ("tls-cert", "certificate to show to it, PEM"),
        ("tls-key", "private key of --reward-tls-cert, PEM"),
        ("token-file", "file of the token to show to it"),
    ):
        group.add_argument(f"--reward-{name}", metavar="FILE", help=text)


def _add_results(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--out",
        type=Path,
        default=Path("runs/train"),
        metavar="DIR",
        help="folder for metrics.jsonl and train.json of process 0 (default: %(default)s)",
    )
    add(
        "--dump-rollouts",
        action="store_true",
        help="write the rows of each process with their rewards to rollouts-PROCESS.jsonl",
    )
    add(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="folder of checkpoints, shared by all processes; goes on from the last one in it",
    )
    add(
        "--checkpoint-every",
        type=int,
        default=10,
        metavar="N",
        help="steps between checkpoints (default: %(default)g)",
    )
    add(
        "--log-level",
        type=str.upper,
        default="WARNING",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        metavar="LEVEL",
        help="DEBUG, INFO, WARNING or ERROR; DEBUG logs the whole message of each failed row,"
        " which may quote completions (default: %(default)s)",
    )


def _add_job(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--coordinator", metavar="HOST:PORT", help="address of process 0 for jax.distributed")
    add("--num-processes", type=int, metavar="N", help="processes of the job")
    add("--process-id", type=int, metavar="I", help="number of this process, from 0")
    add(
        "--agreement-timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="longest wait for another process in seconds (default: %(default)g)",
    )


def _mesh(text: str) -> dict[str, int]:
    try:
        return parse_mesh(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _version() -> str:
    try:
        return importlib.metadata.version("shardward")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
