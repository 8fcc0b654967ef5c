# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of GSM8K answers."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

EXAMPLE: dict[str, Any] = {
    "prompt": "Ann has 3 apples and buys 4. How many has she?",
    "completion": "3 + 4 = 7\n#### 7",
    "columns": {"answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
}

_MARKER = "####"
_MAX_CHARACTERS = 10_000
# Sign and currency in either order, then digits with or without comma groups; the exponent is
# short so that no text makes a number that is expensive to compare.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s?\\?[$€£¥₹]?\s?(?P<inner>[+-]?)"
    r"(?P<value>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<exponent>[eE][+-]?[0-9]{1,3})?(?P<tail>.*)",
    re.DOTALL,
)
# What may follow the number: a unit, words, a full stop. More digits or an operator make it
# another number, and so does a word for a multiple.
_NOT_A_UNIT = re.compile(
    r"[0-9+=/^<>\u00d7\u00f7\[\]{}\ufffd-]|\b(?:k|hundred|thousand|million|billion|dozen)\b"
)


def gsm8k(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    **_: Any,
) -> list[float | None]:
    """Rewards completions whose marked number equals the reference.

    Contract: the number stands on the line of the last `####`, or, without any `####`, in the last
    closed `<answer>…</answer>`. It is one well-formed number: optional sign and currency, comma
    groups of three, decimals, an exponent of up to three digits, then a unit or full stop, bold
    marks aside. A second number is a list of guesses and earns 0.0. Unicode digits and minus
    count as ASCII. Compared exactly. No marker earns 0.0, right in substance or not.
    `answer` is a GSM8K answer text with `####`, or a bare number; anything else gives None, a row
    without reward.

    Example:
        `gsm8k(["3+4?"], ["#### $7.00"], ["7"])` gives `[1.0]`.
    """
    rewards: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        expected = _gold(gold)
        rewards.append(None if expected is None else float(_found(completion) == expected))
    return rewards


def _gold(gold: object) -> Decimal | None:
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return None
    return _number(str(gold).rpartition(_MARKER)[2])


def _found(completion: str) -> Decimal | None:
    before, marker, text = completion.rpartition(_MARKER)
    if marker:
        # The number may be inside a tag that ends on the same line.
        return _number(text.strip().partition("\n")[0].partition("</")[0])
    before, end, _ = completion.rpartition("</answer>")
    _, start, text = before.rpartition("<answer>")
    return _number(text) if end and start else None


def _number(text: str) -> Decimal | None:
    if len(text) > _MAX_CHARACTERS:
        return None
    text = unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-")
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc") or c.isspace())
    match = _NUMBER.fullmatch(text.strip(" \t\r\n*_`:"))
    if match is None or (match["sign"] and match["inner"]):
        return None
    if _NOT_A_UNIT.search(match["tail"].lower()):
        return None
    digits = match["value"].replace(",", "") + (match["exponent"] or "")
    value = Decimal(digits)
    return value.copy_negate() if "-" in match["sign"] + match["inner"] else value
