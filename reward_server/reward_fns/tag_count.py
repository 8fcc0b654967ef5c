# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Partial format reward that counts tags."""

from __future__ import annotations

from typing import Any

from reward_server.reward_fns._extract import without_special_text
from reward_server.reward_fns._tags import tags

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 2+2?",
    "completion": "<think>2 and 2 make 4</think><answer>4</answer>",
    "columns": {},
}


def tag_count(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    *,
    think_tag: str = "think",
    answer_tag: str = "answer",
    **_: Any,
) -> list[float | None]:
    """Rewards each of the four tags that occurs exactly once with a quarter.

    Contract: 0.0, 0.25, 0.5, 0.75 or 1.0. Order and content of the blocks do not matter: a signal
    for the start of training, not a proof of the format (`format_strict` is).

    Args:
        prompts: not used.
        completions: texts to grade.
        think_tag: name of the tag around the reasoning.
        answer_tag: name of the tag around the answer.

    Example:
        `tag_count(["2+2?"], ["<think>a</think>4"])` gives `[0.5]`.
    """
    expected = tags(think_tag, answer_tag)
    rewards: list[float | None] = []
    for completion in completions:
        text = without_special_text(completion)
        rewards.append(sum(text.count(tag) == 1 for tag in expected) / len(expected))
    return rewards
