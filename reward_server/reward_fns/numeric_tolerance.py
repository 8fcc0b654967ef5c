# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of numbers that may be rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reward_server.grading_errors import BadParameter
from reward_server.reward_fns import _evaluate
from reward_server.reward_fns._extract import final_text, find_answer
from reward_server.reward_fns._normalize import Unreadable, normalize
from reward_server.reward_fns._read import read_shape
from reward_server.reward_fns._shapes import Expression, Named
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "What is a third of 10, to two places?",
    "completion": r"About \boxed{3.33}.",
    "columns": {"answer": 3.3333},
}


def numeric_tolerance(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    *,
    relative_tolerance: float = 0.01,
    absolute_tolerance: float = 0.0,
    **_: Any,
) -> list[float | None]:
    r"""Rewards completions whose one number is near the reference.

    Contract: the answer is found as by `math`: last box or closed `<answer>`, or after "final
    answer is". It is one real number or an expression without variables. Right if it differs from
    `answer` by at most `relative_tolerance` times the size of `answer`, or by at most
    `absolute_tolerance`. A unit may be left out or added; another one is wrong. Lists, hedges and
    infinities earn 0.0.

    Args:
        prompts: not used.
        completions: texts to grade.
        answer: references, finite numbers.
        relative_tolerance: share of the reference, not negative.
        absolute_tolerance: distance, not negative.

    Raises:
        BadGold: `answer` is no finite number.

    Example:
        `numeric_tolerance(["pi?"], [r"\boxed{3.14}"], [3.14159])` gives `[1.0]`.
    """
    relative = _tolerance("relative_tolerance", relative_tolerance)
    absolute = _tolerance("absolute_tolerance", absolute_tolerance)
    rewards: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        is_scalar = isinstance(gold, str | int | float) and not isinstance(gold, bool)
        expected = _read(str(gold)) if is_scalar else None
        if expected is None:
            raise BadGold("answer", "one finite number", gold)
        text = final_text(completion)
        answer_text = None if text is None else find_answer(text)
        found = None if answer_text is None else _read(answer_text)
        allowed = max(absolute, relative * abs(expected[0]))
        rewards.append(
            float(
                found is not None
                and (not found[1] or not expected[1] or found[1] == expected[1])
                and abs(found[0] - expected[0]) <= allowed
            )
        )
    return rewards


def _tolerance(name: str, value: float) -> Fraction:
    try:
        if (tolerance := Fraction(value)) >= 0:
            return tolerance
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadParameter(f"`{name}` must be a finite number >= 0, got {value!r}.")


def _read(text: str) -> tuple[Fraction, str] | None:
    """Returns the value and the unit."""
    try:
        shape = read_shape(normalize(text))
        shape = shape.value if isinstance(shape, Named) else shape
        if not isinstance(shape, Expression) or _evaluate.symbols(shape.tree):
            return None
        return _evaluate.rational(shape.tree), shape.unit
    except (Unreadable, _evaluate.Undefined):
        return None
