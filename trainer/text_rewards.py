# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward function of Tunix's kind, from texts to numbers, that asks a reward server.

For learners of Tunix that run in one process and have completions as text: the agentic ones, and
its own GRPO learner with settings that a sharded learner refuses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainer import codec
from trainer.errors import ScoringFailed

if TYPE_CHECKING:
    from trainer.client import RewardClient

RewardFn = Callable[..., list[float]]


def reward_fn(client: RewardClient, tokenizer: Any, *, failed_value: float | None) -> RewardFn:
    """Makes the function; see `RewardClient.as_reward_fn`."""
    first_ids = itertools.count(0, 2**20)

    def reward_server(
        prompts: Sequence[str], completions: Sequence[str], **columns: Any
    ) -> list[float]:
        b = len(completions)
        if not b:
            return []
        prompts = [str(prompt) for prompt in prompts]
        groups = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
        rewards = client.score(
            codec.LocalRollouts(
                row_ids=next(first_ids) + np.arange(b),
                group_ids=np.array([groups[prompt] for prompt in prompts], np.int64),
                prompts=prompts,
                completion_ids=_encode(tokenizer, completions),
                end_token_ids=[tokenizer.eos_token_id],
                pad_token_id=tokenizer.eos_token_id,
                columns={
                    name: list(values)
                    for name, values in columns.items()
                    if isinstance(values, Sequence | np.ndarray)
                    and not isinstance(values, str)
                    and len(values) == b
                },
                mode=columns.get("mode", "train"),
            )
        )
        assert rewards is not None
        if rewards.failures and failed_value is None:
            failure = rewards.failures[0]
            raise ScoringFailed(
                f"{len(rewards.failures)} of {b} rows have no reward: {failure.status} of"
                f" {failure.reward_fn}: {failure.message} Pass failed_value to go on with a value.",
                reason="ROWS_FAILED",
            )
        totals: list[float] = np.where(rewards.valid, rewards.totals, failed_value or 0.0).tolist()
        return totals

    return reward_server


def _encode(tokenizer: Any, texts: Sequence[str]) -> NDArray[np.int32]:
    """Ids of texts, each with an end token, padded with it: int32 [b, T]."""
    rows = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if tokenizer.decode(ids) != text or tokenizer.eos_token_id in ids:
            raise ValueError(
                f"the tokenizer must give completions back as they were, got"
                f" {tokenizer.decode(ids)[:100]!r} for {text[:100]!r}."
            )
        rows.append(ids)
    width = max(map(len, rows)) + 1
    return np.array([row + [tokenizer.eos_token_id] * (width - len(row)) for row in rows], np.int32)
