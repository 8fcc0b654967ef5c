# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Format reward of one think block and one answer block."""

from __future__ import annotations

from typing import Any

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 2+2?",
    "completion": "<think>2 and 2 make 4</think>\n<answer>4</answer>",
    "columns": {},
}

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def think_answer_format(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    **_: Any,
) -> list[float]:
    """Rewards one think block, white space, one answer block, and nothing else.

    Contract: 1.0 if, white space at both ends aside, the completion is `<think>…</think>`, white
    space or none, `<answer>…</answer>`; each tag once; both blocks hold more than white space.
    Else 0.0. A tag that the chat template put before the completion counts when it is sent as
    `completion_prefixes`. Time is linear in the length of the text.

    Example:
        `think_answer_format(["2+2?"], ["<think>a</think><answer>4</answer>"])` gives `[1.0]`.
    """
    return [float(_is_strict(completion)) for completion in completions]


def _is_strict(text: str) -> bool:
    text = text.strip()
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    think, think_end, answer, answer_end = (text.find(tag) for tag in _TAGS)
    return (
        think == 0
        and think < think_end < answer < answer_end
        and answer_end + len(_TAGS[3]) == len(text)
        and bool(text[len(_TAGS[0]) : think_end].strip())
        and not text[think_end + len(_TAGS[1]) : answer].strip()
        and bool(text[answer + len(_TAGS[2]) : answer_end].strip())
    )
