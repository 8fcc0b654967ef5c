# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of mathematical answers."""

from __future__ import annotations

import dataclasses
import functools
import math as floats
import re
from typing import Any

from reward_server.reward_fns import _asked, _equality, _evaluate, _symbolic
from reward_server.reward_fns._compare import same
from reward_server.reward_fns._extract import final_text, find_answer, last_box
from reward_server.reward_fns._letter import letter
from reward_server.reward_fns._normalize import TooBig, Unreadable, normalize
from reward_server.reward_fns._read import plain, read_shape
from reward_server.reward_fns._shapes import Expression, Group, Matrix, Named, Shape
from reward_server.reward_fns._tokens import sides, spelling
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "What is half of 5?",
    "completion": r"<think>5 / 2</think> It is \boxed{2\frac{1}{2}}.",
    "columns": {"answer": r"\frac{5}{2}"},
}

_RULE = "a mathematical answer that equals itself"
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|not sure|unsure|guess|either|where|not|"
    r"alternatively|unless)\b|\?",
    re.IGNORECASE,
)
# Also a minus, unless it joins two words: `twenty-one`.
_OPERATOR = re.compile(
    r"[0-9+*/^=<>|&%!()\[\]]|\\(?!text\b)[A-Za-z]|(?<![A-Za-z]{4})-|-(?![A-Za-z]{3})"
)
_WORD = re.compile(r"\\text|[A-Za-z]{3}")


def math(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    *,
    relative_tolerance: float = _equality.RELATIVE_TOLERANCE,
    **_: Any,
) -> list[float | None]:
    r"""Rewards completions whose one final answer equals the reference.

    Contract: the answer is in the completion up to its first end token and after its last closing
    think tag (an unclosed think block earns 0.0): the last balanced `\boxed{}`, `\fbox{}` or
    closed `<answer>`; only without any, what follows the last "final answer is" or "final answer:".
    A bare number, "Answer: 5" and a box that never closes are no answer. A later box corrects an
    earlier one; boxes with only punctuation or "and" between them are one list.

    One answer: a list equals a list only. An answer with "maybe", "either", "?", or an "or" beside
    its box, is hedged and earns 0.0. An "or" in the box makes a list, right if the reference has
    the same elements.

    Shape comes before value: expression, tuple or interval (bracket by bracket), set or list (in
    any order; a set equals a list), union, ratio, matrix (a row is no column), equation (multiples
    are equal; an identity is not), numeral with a base (digits and base, `52_8` is neither 52 nor
    42), text (case and punctuation aside). A reference from A to J is a choice: `(A)`, `A. Paris`.
    `x < 3` is the interval. A name that one side alone gives (`x = 5`, `f(x) = ...`) is dropped,
    and so is the expression that was asked for (`m + n = 5`), but no equation in one unknown
    (`2x = 6` is not 6); two names must agree. `2:30` is a time, or a ratio to be written alike.

    Value: integers, fractions and finite decimals exactly, so 0.333333 is not 1/3, 3/6 is 1/2,
    and 10000000001 is not 10000000000. Irrational constants to 150 digits; a decimal against an
    irrational constant within `relative_tolerance`, no absolute one. Expressions with variables at
    points where both are real. `e` is Euler's number, `i` the imaginary unit, `\log` natural.
    Other things, as integrals, go to math-verify, bounded in size and time. Numbers too large to
    be computed earn 0.0 unless they are spelled as the reference is.

    Spelling: Unicode digits and signs, `\dfrac`, spaces, comma or thin space groups of three
    (`1,234` is one number, `(1,234)` is a point, `12 34` is nothing), e-notation, mixed numbers. A
    unit may be left out or added, another one is wrong, and none is converted. 28 % equals 28 and
    0.28.

    `answer` is the reference, or a list of references any of which is right.

    Args:
        prompts: not used.
        completions: texts to grade.
        answer: references.
        relative_tolerance: for decimals against irrational numbers.

    Raises:
        BadGold: a reference is empty, undefined or unreadable.

    Example:
        `math(["1/2 + 2?"], [r"\boxed{2.5}"], [r"\frac{5}{2}"])` gives `[1.0]`.
    """
    return [
        float(_is_right(completion, gold, relative_tolerance))
        for completion, gold in zip(completions, answer, strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _Gold:
    text: str
    shape: Shape | None


def _is_right(completion: object, gold: Any, relative_tolerance: float) -> bool:
    golds = gold if isinstance(gold, list | tuple) else [gold]
    if not golds:
        raise BadGold("answer", _RULE, gold)
    if not all(map(_is_text_or_number, golds)):
        raise BadGold("answer", _RULE, gold)
    references = [_gold(str(g)) for g in golds]
    text = final_text(completion)
    found = find_answer(text) if text is not None else None
    if found is None:
        return False
    try:
        found = normalize(found)
    except Unreadable:
        return False
    return any(_equal(reference, found, relative_tolerance) for reference in references)


def _is_text_or_number(gold: Any) -> bool:
    if isinstance(gold, bool):
        return False
    return isinstance(gold, str | int) or (isinstance(gold, float) and floats.isfinite(gold))


@functools.lru_cache(maxsize=4096)
def _gold(text: str) -> _Gold:
    """Reads a reference and compares it to itself."""
    given = text
    box = last_box(text)
    try:
        text = normalize(text if box is None else box)
    except Unreadable:
        text = ""
    if text.lower() in ("", "nan", "null", r"\ldots"):
        raise BadGold("answer", _RULE, given)
    try:
        shape = read_shape(text)
        if not _defined(shape):
            raise BadGold("answer", _RULE, given)
    except TooBig:
        return _Gold(text, None)
    except Unreadable:
        if not _symbolic.is_well_formed(text):
            raise BadGold("answer", _RULE, given) from None
        # Words or mathematics of another kind: right if spelled alike, or if math-verify says so.
        return _Gold(text, None)
    return _Gold(text, shape)


def _defined(shape: Shape) -> bool:
    if isinstance(shape, Group):
        return all(map(_defined, shape.items))
    if isinstance(shape, Named):
        return _defined(shape.value)
    if isinstance(shape, Matrix):
        return all(_defined(item) for row in shape.rows for item in row)
    if isinstance(shape, Expression):
        if _evaluate.symbols(shape.tree):
            return True
        try:
            _evaluate.value(shape.tree)
        except _evaluate.Undefined:
            return False
    return True


def _equal(gold: _Gold, found: str, relative_tolerance: float) -> bool:  # noqa: PLR0911
    if found == gold.text or spelling(found) == spelling(gold.text):
        return True
    if len(gold.text.strip("()")) == 1 and gold.text.strip("()") in "ABCDEFGHIJ":
        return letter(found) == gold.text.strip("()")
    if _WORD.search(gold.text) and not any(map(_OPERATOR.search, (gold.text, found))):
        words = plain(gold.text)
        if len(words) > 1 and words == plain(found):
            return True
    if _HEDGE.search(found) and not _HEDGE.search(gold.text):
        return False
    try:
        shape = read_shape(found)
        if gold.shape is not None and same(gold.shape, shape, relative_tolerance):
            return True
        is_read = gold.shape is not None
    except TooBig:
        return False
    except Unreadable:
        is_read = False
    if len(sides(gold.text)) == 1 and (value := _asked.value_of(found)) is not None:
        return _equal(gold, value, relative_tolerance)
    return (
        not is_read
        and _symbolic.is_candidate(gold.text, found)
        and _symbolic.verified(gold.text, found)
    )
