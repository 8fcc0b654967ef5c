# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Format reward of a think block and an answer block with text around them."""

from __future__ import annotations

from typing import Any

from reward_server.reward_fns._tags import pieces, tags

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 2+2?",
    "completion": "Well. <think>2 and 2 make 4</think> So <answer>4</answer> it is.",
    "columns": {},
}


def format_lenient(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    *,
    think_tag: str = "think",
    answer_tag: str = "answer",
    **_: Any,
) -> list[float | None]:
    """Rewards one think block and, later, one answer block, whatever stands around them.

    Contract: as `format_strict`, but text before, between and after the blocks is allowed.

    Args:
        prompts: not used.
        completions: texts to grade.
        think_tag: name of the tag around the reasoning.
        answer_tag: name of the tag around the answer.

    Example:
        `format_lenient(["2+2?"], ["<think>a</think> so <answer>4</answer>!"])` gives `[1.0]`.
    """
    expected = tags(think_tag, answer_tag)
    return [float(pieces(completion, expected) is not None) for completion in completions]
