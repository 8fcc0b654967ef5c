# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of one number in a box."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reward_server.reward_fns import _evaluate
from reward_server.reward_fns._expression import Tree
from reward_server.reward_fns._extract import final_text, last_box
from reward_server.reward_fns._normalize import Unreadable, normalize
from reward_server.reward_fns._read import read_shape
from reward_server.reward_fns._shapes import Expression
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "What is 3 times 411.5?",
    "completion": r"It is \boxed{1{,}234.50}.",
    "columns": {"answer": "1234.5"},
}


def boxed_number(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    **_: Any,
) -> list[float | None]:
    r"""Rewards completions whose last box holds the number.

    Contract: the last balanced `\boxed{}` or `\fbox{}` of the completion, up to its first end
    token and after its last closing think tag (an unclosed think block earns 0.0), is one number:
    an integer, decimal, fraction or mixed number, with comma or thin space groups of three, an
    exponent, currency or unit, in Unicode or LaTeX. Sums, powers, roots and lists earn 0.0, and so
    does a unit other than the reference's. Compared exactly.

    Raises:
        BadGold: `answer` is no such number.

    Example:
        `boxed_number(["1/2?"], [r"\boxed{0.5}"], [r"\frac{1}{2}"])` gives `[1.0]`.
    """
    return [
        float(_is_right(completion, gold))
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _is_right(completion: object, gold: object) -> bool:
    expected = _read(str(gold)) if isinstance(gold, str | int | float) else None
    if expected is None or isinstance(gold, bool):
        raise BadGold("answer", "one number", gold)
    text = final_text(completion)
    box = None if text is None else last_box(text)
    found = None if box is None else _read(box)
    if found is None or found[0] != expected[0]:
        return False
    return not found[1] or not expected[1] or found[1] == expected[1]


def _read(text: str) -> tuple[Fraction, str] | None:
    """Returns the value and the unit."""
    try:
        shape = read_shape(normalize(text))
        if not isinstance(shape, Expression) or not _is_number(shape.tree):
            return None
        value = _evaluate.value(shape.tree)
    except (Unreadable, _evaluate.Undefined):
        return None
    return (value, shape.unit) if isinstance(value, Fraction) else None


def _is_number(tree: Tree) -> bool:
    if tree[0] == "neg":
        return _is_number(tree[1])
    if tree[0] == "div":
        return all(part[0] in ("num", "neg") and _is_number(part) for part in tree[1:])
    return bool(tree[0] == "num")
