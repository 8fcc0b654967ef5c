# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`grpo-train`: trains a recipe in one process of a job. Flags and exit codes only.

JAX is imported after the flags are read and the reward server has answered.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import recipes
from trainer.run_config import ALGORITHMS, ConfigError, RunConfig, parse_mesh

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, FAILED, USAGE, CONFIG, UNREACHABLE = 0, 1, 2, 3, 4
INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser: one flag for each field of `RunConfig`."""
    parser = argparse.ArgumentParser(
        prog="grpo-train",
        description="Trains a recipe by GRPO or a relative with rewards from a reward server."
        " Start one per process of the job.",
        epilog="JAX finds the other processes from Slurm or Kubernetes; elsewhere pass"
        " --coordinator, --num-processes and --process-id. Exit codes: 0 ok, 1 training failed,"
        " 2 usage, 3 configuration, 4 reward server unreachable, 143 stopped by SIGTERM.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--reward-endpoint",
        required=True,
        metavar="ADDR",
        help="reward server of this process: unix:PATH or HOST:PORT",
    )
    for name, text in (
        ("tls-ca", "CA of the reward server, PEM; with it TLS is used"),
        ("tls-cert", "certificate to show it, PEM"),
        ("tls-key", "private key of that, PEM"),
        ("token-file", "token to show it"),
    ):
        add(f"--reward-{name}", metavar="FILE", help=text)
    add(
        "--reward-path",
        default="grpc",
        metavar="PATH",
        help="grpc (the default): rows go to the server from the host; callback: from a JAX"
        " operation",
    )
    add("--recipe", required=True, choices=recipes.NAMES, help="model, task and settings")
    add(
        "--algorithm",
        default="grpo",
        metavar="NAME",
        help=f"one of {', '.join(ALGORITHMS)} (default: grpo)",
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
    add("--seed", type=int, default=0, help="decides weights, problems and samples (default: 0)")
    add(
        "--out",
        type=Path,
        default=Path("runs/train"),
        metavar="DIR",
        help="folder for metrics.jsonl and train.json of process 0 (default: runs/train)",
    )
    add(
        "--dump-rollouts",
        action="store_true",
        help="write the rows of each process with their rewards to rollouts-PROCESS.jsonl",
    )
    add("--coordinator", metavar="HOST:PORT", help="address of process 0 for jax.distributed")
    add("--num-processes", type=int, metavar="N", help="processes of the job")
    add("--process-id", type=int, metavar="I", help="number of this process, from 0")
    add(
        "--agreement-timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="longest wait for another process in seconds (default: 600)",
    )
    add(
        "--reward-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="longest wait for the rewards of a batch in seconds (default: 300)",
    )
    add(
        "--on-failed-row",
        default="mask",
        metavar="RULE",
        help="a row without a reward: mask (advantage 0, the default), value=X or abort",
    )
    add(
        "--max-failed-fraction",
        type=float,
        default=0.25,
        metavar="F",
        help="share of failed rows in a step above which the run ends (default: 0.25)",
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
        help="steps between checkpoints (default: 10)",
    )
    return parser


def _mesh(text: str) -> dict[str, int]:
    try:
        return parse_mesh(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse(arguments: Sequence[str] | None = None) -> RunConfig:
    """Reads the flags; exits with code 2 when they are wrong."""
    parser = make_parser()
    flags = parser.parse_args(arguments)
    try:
        return RunConfig(**vars(flags))
    except ValueError as error:
        parser.error(str(error))


def check_trainer_package() -> None:
    """Checks that no other distribution's `trainer` package lies over this one.

    Raises:
        ConfigError: the imported package has none of this project's names.
    """
    import trainer  # noqa: PLC0415 - the package as it was found

    if not hasattr(trainer, "RewardClient"):
        raise ConfigError(
            f"the package `trainer` at {trainer.__path__[0]} is not shardward's."
            " Uninstall the distribution `trainer` or use another environment."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        The exit code.
    """
    config = parse(arguments)
    _set_up_logging()
    try:
        stopped = _run(config)
        code = _say(stopped, TERMINATED) if stopped else OK
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the boundary of the command
        code = exit_code(error)
        if code == FAILED and not _is_expected(error):
            traceback.print_exc()
        _say(error, code)
    sys.stdout.flush()
    sys.stderr.flush()
    if code != OK and "jax" in sys.modules:
        # JAX's exit handler would wait for the other processes, which wait for this one.
        os._exit(code)
    return code


def _set_up_logging() -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # Libraries warn of what is no problem here: no PyTorch, devices without memory statistics.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("absl").addFilter(
        lambda record: not record.getMessage().startswith("Skipping non-TPU device")
    )


def _run(config: RunConfig) -> str:
    check_trainer_package()
    check_endpoint(config)
    try:
        from trainer import run  # noqa: PLC0415 - imports JAX
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}. Install shardward[trainer].") from error
    return run.run(config)


def check_endpoint(config: RunConfig) -> None:
    """Waits for the reward server before the slow part of the start.

    Raises:
        Unavailable: nothing answers.
        ConfigError: a file of the credentials can't be used.
    """
    from trainer.client import RewardClient  # noqa: PLC0415 - after the check of the package

    try:
        client = RewardClient(config.reward_endpoint, **config.reward_credentials)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    with contextlib.closing(client):
        # No tokenizer is loaded yet; the learner checks it.
        logging.getLogger("trainer.client").setLevel(logging.ERROR)
        client.connect()
    logging.getLogger("trainer.client").setLevel(logging.NOTSET)


def exit_code(error: Exception) -> int:
    """Finds the exit code for an error, also when another process had it first."""
    from trainer.errors import InvalidRequest, Unavailable  # noqa: PLC0415 - after the check

    for found in (error, error.__cause__):
        if isinstance(found, Unavailable):
            return UNREACHABLE
        if isinstance(found, ConfigError | InvalidRequest):
            return CONFIG
    if "Unavailable: " in str(error):
        return UNREACHABLE
    return CONFIG if "InvalidRequest: " in str(error) else FAILED


def _is_expected(error: Exception) -> bool:
    """Whether the message says all there is to say, so that a trace would hide it."""
    from trainer.errors import RewardError  # noqa: PLC0415 - after the check

    return isinstance(error, RewardError)


def _say(message: object, code: int) -> int:
    print(f"grpo-train: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
