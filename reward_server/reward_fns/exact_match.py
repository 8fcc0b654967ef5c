# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of texts that must be the reference itself."""

from __future__ import annotations

from typing import Any

from reward_server.reward_fns._extract import final_text, last_tag
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "What is the capital of France?",
    "completion": "<think>Easy.</think> Paris",
    "columns": {"answer": "Paris"},
}


def exact_match(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    *,
    case_sensitive: bool = True,
    **_: Any,
) -> list[float | None]:
    """Rewards completions that are the reference, white space aside.

    Contract: the text of the last closed `<answer>`, or without one the whole completion, up to
    its first end token and after its last closing think tag (an unclosed think block earns 0.0),
    equals `answer` once both have single spaces and none at the ends. Nothing else is normalized.

    Args:
        prompts: not used.
        completions: texts to grade.
        answer: references.
        case_sensitive: whether "paris" is wrong for "Paris".

    Raises:
        BadGold: `answer` is no text, or an empty one.

    Example:
        `exact_match(["?"], [" Paris "], ["Paris"])` gives `[1.0]`.
    """
    rewards: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        if not isinstance(gold, str) or not gold.strip():
            raise BadGold("answer", "a text that is not empty", gold)
        text = final_text(completion)
        tag = None if text is None else last_tag(text)
        found = " ".join((tag.text if tag else text or "").split())
        expected = " ".join(gold.split())
        if not case_sensitive:
            found, expected = found.casefold(), expected.casefold()
        rewards.append(float(found == expected))
    return rewards
