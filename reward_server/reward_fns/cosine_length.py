# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Correctness reward that depends on the length by a cosine."""

from __future__ import annotations

import math as functions
from typing import Any

from reward_server.grading_errors import BadParameter
from reward_server.reward_fns.mathematics import math

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 2+2?",
    "completion": r"\boxed{4}",
    "columns": {"answer": "4"},
}


def cosine_length(
    prompts: list[str],
    completions: list[str],
    answer: list[Any],
    completion_ids: list[list[int]],
    *,
    max_tokens: int = 4096,
    correct_short: float = 1.0,
    correct_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
    exceeded: float = -1.0,
    **_: Any,
) -> list[float | None]:
    r"""Rewards short right answers most, and short wrong ones least.

    Contract: the cosine reward of "Demystifying Long Chain-of-Thought Reasoning in LLMs"
    (https://arxiv.org/abs/2502.03373, appendix C.1). A completion of `n < max_tokens` tokens earns
    `long + (short - long) * (1 + cos(pi * n / max_tokens)) / 2`, with the values for right or wrong
    answers as `math` grades them; from `max_tokens` on it earns `exceeded`. The defaults are ours.

    Args:
        prompts: not used.
        completions: texts to grade.
        answer: references, as for `math`.
        completion_ids: token ids of the completions.
        max_tokens: length at which the curve ends, at least 1.
        correct_short: reward of a right answer of no length.
        correct_long: reward of a right answer of `max_tokens`.
        wrong_short: reward of a wrong answer of no length.
        wrong_long: reward of a wrong answer of `max_tokens`.
        exceeded: reward of a completion of `max_tokens` or more, right or wrong.

    Raises:
        BadGold: as `math` does.

    Example:
        `cosine_length([""], [r"\boxed{4}"], ["4"], [[1] * 2048])` gives `[0.75]`.
    """
    if max_tokens < 1:
        raise BadParameter(f"`max_tokens` must be at least 1, got {max_tokens}.")
    rewards: list[float | None] = []
    right = math(prompts, completions, answer)
    for is_right, ids in zip(right, completion_ids, strict=True):
        if len(ids) >= max_tokens:
            rewards.append(exceeded)
            continue
        short, long = (correct_short, correct_long) if is_right else (wrong_short, wrong_long)
        share = (1 + functions.cos(functions.pi * len(ids) / max_tokens)) / 2
        rewards.append(long + (short - long) * share)
    return rewards
