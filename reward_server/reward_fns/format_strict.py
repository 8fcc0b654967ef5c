# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Format reward of one think block, one answer block, and nothing else."""

from __future__ import annotations

from typing import Any

from reward_server.reward_fns._tags import pieces, tags

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 2+2?",
    "completion": "<think>2 and 2 make 4</think>\n<answer>4</answer>",
    "columns": {},
}


def format_strict(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    *,
    think_tag: str = "think",
    answer_tag: str = "answer",
    **_: Any,
) -> list[float | None]:
    """Rewards one think block, white space, one answer block, and nothing else.

    Contract: 1.0 if, white space at both ends aside, the completion is `<think>…</think>`, white
    space or none, `<answer>…</answer>`; each tag once; both blocks hold more than white space.
    Else 0.0, so an empty think block and a tag opened twice earn nothing. End and padding tokens
    that were left in the text are no part of it. A tag that the chat template put before the
    completion counts when it is sent as `completion_prefixes`. Tags are compared by character.

    Args:
        prompts: not used.
        completions: texts to grade.
        think_tag: name of the tag around the reasoning.
        answer_tag: name of the tag around the answer.

    Example:
        `format_strict(["2+2?"], ["<think>a</think><answer>4</answer>"])` gives `[1.0]`.
    """
    expected = tags(think_tag, answer_tag)
    rewards: list[float | None] = []
    for completion in completions:
        found = pieces(completion, expected)
        around = None if found is None else found[0] + found[2] + found[4]
        rewards.append(float(around is not None and not around.strip()))
    return rewards
