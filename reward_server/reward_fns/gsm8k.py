# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of GSM8K answers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from reward_server.reward_fns._extract import final_text, last_tag, without_lead
from reward_server.reward_fns._one_number import one_number
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "Ann has 3 apples and buys 4. How many has she?",
    "completion": "3 + 4 = 7\n#### 7",
    "columns": {"answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
}

_MARKER = "####"
_BOX = re.compile(r"\$?\\boxed\{([^{}]*)\}\$?\.?")

Numbers = tuple[Fraction, ...]


def gsm8k(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    **_: Any,
) -> list[float | None]:
    """Rewards completions whose marked number equals the reference.

    Contract: the number stands after the last `####`, on that line or the next, or, without any
    `####`, in the last closed `<answer>…</answer>`; after "the answer is" or not, in a box or not;
    in the completion up to its first end token and after its last closing think tag (an unclosed
    think block earns 0.0). It is one well-formed number: optional sign and currency, comma groups
    of three, decimals, an exponent of up to three digits, then a unit or full stop, bold marks
    aside. A second number, also after another marker on the same line, is a list of guesses and
    earns 0.0. Unicode digits and minus count as ASCII, number words do not. Compared exactly. No
    marker, or a tag that never closes, earns 0.0, right in substance or not.

    `answer` is a GSM8K answer text with `####`, a bare number, or a list of numbers in square
    brackets, which the completion then gives in the same way.

    Raises:
        BadGold: `answer` is none of these.

    Example:
        `gsm8k(["3+4?"], ["#### $7.00"], ["7"])` gives `[1.0]`.
    """
    return [
        float(_gold(gold) == _found(completion))
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _gold(gold: object) -> Numbers:
    if isinstance(gold, str | int | float) and not isinstance(gold, bool):
        numbers = _numbers(str(gold).rpartition(_MARKER)[2])
        if numbers is not None:
            return numbers
    raise BadGold("answer", "a number or a text with `####` and a number", gold)


def _found(completion: object) -> Numbers | None:
    text = final_text(completion)
    if text is None:
        return None
    before, marker, rest = text.rpartition(_MARKER)
    if not marker:
        tag = last_tag(text)
        return None if tag is None else _numbers(without_lead(tag.text))
    if _MARKER in before.rpartition("\n")[2]:
        return None
    # The number may be inside a tag that ends on the same line.
    return _numbers(without_lead(rest.strip().partition("\n")[0].partition("</")[0]))


def _numbers(text: str) -> Numbers | None:
    text = text.strip()
    if box := _BOX.fullmatch(text):
        text = box[1]
    parts = text[1:-1].split(",") if text[:1] == "[" and text[-1:] == "]" else [text]
    numbers = tuple(map(one_number, parts))
    return None if None in numbers else numbers  # type: ignore[return-value]
