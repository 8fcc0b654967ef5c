# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Penalty of repeated n-grams."""

from __future__ import annotations

from typing import Any

from reward_server.grading_errors import BadParameter

EXAMPLE: dict[str, Any] = {"prompt": "What is 2+2?", "completion": "4", "columns": {}}


def repetition_penalty(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],  # noqa: ARG001 - n-grams are of tokens
    completion_ids: list[list[int]],
    *,
    ngram_tokens: int = 8,
    max_penalty: float = 1.0,
    **_: Any,
) -> list[float | None]:
    """Gives 0.0 without repetition, down to nearly -`max_penalty` for one n-gram over and over.

    Contract: `-max_penalty * (1 - distinct / all)`, counted over the n-grams of token ids; the
    share is that of open-r1's repetition penalty, which counts words. 0.0 for completions of fewer
    tokens than `ngram_tokens`.

    Args:
        prompts: not used.
        completions: not used.
        completion_ids: token ids of the completions.
        ngram_tokens: length of an n-gram, at least 1.
        max_penalty: size of the penalty, not negative.

    Example:
        `repetition_penalty([""], [""], [[1, 2, 1, 2, 1]], ngram_tokens=2)` gives `[-0.5]`.
    """
    if ngram_tokens < 1:
        raise BadParameter(f"`ngram_tokens` must be at least 1, got {ngram_tokens}.")
    rewards: list[float | None] = []
    for ids in completion_ids:
        total = len(ids) - ngram_tokens + 1
        if total < 1:
            rewards.append(0.0)
            continue
        distinct = len(set(zip(*(ids[i:] for i in range(ngram_tokens)), strict=False)))
        rewards.append(-max_penalty * (1 - distinct / total))
    return rewards
