# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The reward path that a learner was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.agreement import Agreement
from trainer.arrays import RowArrays
from trainer.client import RewardClient
from trainer.in_process import InProcessReward
from trainer.paths import ALLGATHER, CALLBACK, GRPC, SERVER_PATHS
from trainer.paths.callback import CallbackPath
from trainer.paths.host import GrpcPath
from trainer.paths.path import RewardPath


def check_reward_fns(reward_path: str, reward_fns: Any, score_on: str) -> None:
    """Refuses what does not fit together, before anything starts.

    Raises:
        ValueError: names the argument, the rule and the value.
    """
    if reward_path not in (*SERVER_PATHS, ALLGATHER):
        raise ValueError(
            f"`reward_path` must be 'grpc', 'callback' or 'allgather', got {reward_path!r}."
        )
    if score_on not in ("all", "first"):
        raise ValueError(f"`score_on` must be 'all' or 'first', got {score_on!r}.")
    if reward_path in SERVER_PATHS:
        if not isinstance(reward_fns, RewardClient):
            raise ValueError(
                f"`reward_fns` must be a RewardClient, got {type(reward_fns).__name__}."
                " Reward functions run in the reward server, or in this process with"
                " reward_path='allgather'."
            )
        return
    if not isinstance(reward_fns, Sequence) or not reward_fns:
        raise ValueError(
            "`reward_fns` must be a list of functions with reward_path='allgather',"
            f" got {type(reward_fns).__name__}."
        )
    for fn in reward_fns:
        if not callable(fn) and not isinstance(fn, InProcessReward):
            raise ValueError(
                f"`reward_fns` must hold functions or InProcessRewards, got {type(fn).__name__}."
            )


def make_path(
    reward_path: str,
    reward_fns: Any,
    *,
    arrays: RowArrays,
    agreement: Agreement,
    tokenizer: Any,
    failed_value: float | None,
    score_on: str,
) -> RewardPath:
    """Makes a path of what `check_reward_fns` has let through.

    Args:
        reward_path: its name.
        reward_fns: a `RewardClient`, or functions.
        arrays: where the rows lie.
        agreement: of all processes.
        tokenizer: of the trainer.
        failed_value: total of a row without one, or None when it is masked.
        score_on: "all" or "first" process, for functions.
    """
    if reward_path == GRPC:
        return GrpcPath(reward_fns, arrays)
    if reward_path == CALLBACK:
        return CallbackPath(reward_fns, arrays, failed_value=failed_value)
    from trainer.paths.allgather import AllgatherPath  # noqa: PLC0415 - needs the server's package

    return AllgatherPath(
        reward_fns,
        arrays,
        agreement=agreement,
        tokenizer=tokenizer,
        first_only=score_on == "first",
    )
