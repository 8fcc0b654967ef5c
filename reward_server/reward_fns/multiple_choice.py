# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of a chosen letter."""

from __future__ import annotations

import re
from typing import Any

from reward_server.reward_fns._extract import final_text, find_answer, last_box, last_tag
from reward_server.reward_fns._letter import letter
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "Which is even? (A) 3 (B) 4",
    "completion": "3 is odd, so the answer is (B).",
    "columns": {"answer": "B"},
}

_PHRASE = re.compile(
    r"\b(?:answer|correct\s+(?:option|choice))(?:\s+is\b|\s*[*_]*:)[:\s*_]*"
    r"(?:(?:option|choice)\s+)?(?=[\\(\[$*\"`\u201cA-Ja-j])",
    re.IGNORECASE,
)


def multiple_choice(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    **_: Any,
) -> list[float | None]:
    r"""Rewards completions that choose the right letter, A to J.

    Contract: the choice stands in the last `\boxed{}` or closed `<answer>`; without one, after the
    last "answer is" or "answer:"; without that, alone on the last line. It is `B`, `(B)`, `B.`
    or `\text{B}`, with the text of the choice after it or not (`B) Paris`). Several letters, or
    words of doubt, earn 0.0. Graded up to the first end token and after the last closing think tag;
    an unclosed think block earns 0.0. A small letter counts only with nothing after it.

    Raises:
        BadGold: `answer` is no letter from A to J.

    Example:
        `multiple_choice(["?"], ["The answer is (B)."], ["B"])` gives `[1.0]`.
    """
    rewards: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        expected = str(gold).strip().strip("().").upper()
        if len(expected) != 1 or expected not in "ABCDEFGHIJ":
            raise BadGold("answer", "a letter from A to J", gold)
        rewards.append(float(_choice(completion) == expected))
    return rewards


def _choice(completion: object) -> str | None:
    text = final_text(completion)
    if text is None:
        return None
    if last_box(text) is not None or last_tag(text) is not None:
        found = find_answer(text)
        return None if found is None else letter(found)
    start = None
    for phrase in _PHRASE.finditer(text):
        start = phrase.end()
    if start is not None:
        return letter(re.split(r"\n|(?<=[).])\s+(?=[A-Z][a-z])", text[start:], maxsplit=1)[0])
    lines = text.strip().splitlines()
    return letter(lines[-1]) if lines and len(lines[-1].strip()) <= 8 else None
