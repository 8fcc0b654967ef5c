# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`grpo-train`: trains a recipe in one process of a job. Exit codes only; flags are in `flags`.

JAX is imported after the flags are read and the reward server has answered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import traceback
from typing import TYPE_CHECKING, Any

from trainer import recipes
from trainer.flags import (
    CONFIG,
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    UNREACHABLE,
    make_parser,
)
from trainer.recipes.recipe import RecipeError
from trainer.run_config import ConfigError, RunConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


# Errors of which the one that follows from them says all there is to say.
_EXPLAINED = ("JaxRuntimeError", "SaveError")


def parse(arguments: Sequence[str] | None = None) -> RunConfig:
    """Reads the flags; exits when they are wrong, with code 2, or only ask to print something."""
    parser = make_parser()
    flags = vars(parser.parse_args(arguments))
    try:
        if flags.pop("print_server_flags"):
            print(_server_flags(flags))
            sys.exit(OK)
        return RunConfig(**flags)
    except ValueError as error:
        parser.error(str(error))
    except RecipeError as error:
        sys.exit(_say(error, CONFIG))


def _server_flags(flags: dict[str, Any]) -> str:
    """The files that a recipe's reward server needs, as flags for it."""
    recipe = recipes.load(flags["recipe"], task=flags["task"], lora_rank=flags["lora_rank"])
    recipe.prepare()
    files = {"--tokenizer": recipe.tokenizer_dir, "--rewards": recipe.rewards_file}
    return shlex.join(part for flag, file in files.items() for part in (flag, str(file)))


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
    _set_up_logging(config.log_level)
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
        from trainer import coordination  # noqa: PLC0415 - imports JAX

        coordination.end_process(code)
    return code


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S%z",
        stream=sys.stderr,
    )
    # Not of the root: JAX and Orbax fill pages at INFO.
    logging.getLogger("trainer").setLevel(level)
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
        client = RewardClient(
            config.reward_endpoint,
            connect_timeout_s=config.reward_start_timeout,
            **config.reward_credentials,
        )
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
    configured = ("InvalidRequest: ", "ConfigError: ")
    return CONFIG if any(name in str(error) for name in configured) else FAILED


def _is_expected(error: Exception) -> bool:
    """Whether the message says all there is to say, so that a trace would hide it."""
    from trainer.errors import RewardError  # noqa: PLC0415 - after the check

    # The error of this process that all raise may be anything, a mistake in a program for one.
    cause = error.__cause__
    known = cause is None or isinstance(cause, RewardError | ConfigError)
    return isinstance(error, RewardError) and (known or type(cause).__name__ in _EXPLAINED)


def _say(message: object, code: int) -> int:
    print(f"grpo-train: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
