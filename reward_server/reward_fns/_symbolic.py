# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks math-verify about what is not read here: integrals, sums, limits, products.

What it is given is bounded first. Only its LaTeX reader is used: the other one evaluates text.
"""

from __future__ import annotations

import re
import threading

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException

from reward_server.reward_fns._normalize import Unreadable
from reward_server.reward_fns._tokens import RELATIONS, outside, sides, tokenize

_SECONDS = 2
_MAX_CHARACTERS = 300
_MAX_POWERS = 8
_CALCULUS = re.compile(
    r"\\(?:int|iint|oint|sum|prod|lim|frac\s*\{\s*d|partial|nabla|begin\{cases\}|det|gcd|lcm|max|min"
    r"|Re|Im|arg|bmod|pmod|mod|cap|in|forall|exists|to|rightarrow|vec|hat|overline)(?![A-Za-z])"
)
# Words, limits of sums that are powers, large factorials and powers, towers, and what is no LaTeX.
_REFUSED = re.compile(
    r"\\text|\\(?:sum|prod)[^=]*=[^^]*\^\s*\{[^{}]*\^|[0-9]{4,}\s*!|\^\s*\{?\s*[0-9(]{4,}"
    r"|\^[^{}]{0,3}\^|!\s*!|['\"@#`]|__"
)
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{4,}")
# Commands other than those that stand in numbers; words in a text group or on their own.
_COMMAND = re.compile(
    r"\\(?!(?:text|frac|sqrt|surd|binom|infty|degree|le|ge|ne|in|pm|mp)\b)[A-Za-z]+"
)
_WORDS = re.compile(r"\\text\s*\{[^{}]*[A-Za-z][^{}]*\}|(?<!\\)\b[A-Za-z]{4,}")
_CASES = re.compile(r"(?:begin|end)\{cases\}")
_SEPARATORS = (",", ";", *RELATIONS)
# The target of a limit, unless it is infinite or has a side.
_TWO_SIDED = re.compile(
    r"(\\lim\s*_\s*\{[^{}]*\\(?:to|rightarrow)(?![A-Za-z])\s*(?:(?!\\infty)[^{}^])+)(\})"
)
_LATEX = [LatexExtractionConfig()]


def is_well_formed(gold: str) -> bool:
    """Says whether a reference that is not read here is still words, or other mathematics."""
    balanced = gold.replace(r"\{", "").count("{") == gold.replace(r"\}", "").count("}")
    return balanced and bool(_COMMAND.search(gold) or _WORDS.search(gold))


def is_candidate(gold: str, answer: str) -> bool:
    """Says whether two normalized answers are small enough, and of a kind to ask about."""
    return (
        bool(_CALCULUS.search(gold) or _CALCULUS.search(answer))
        and all(
            len(text) <= _MAX_CHARACTERS
            and text.isascii()
            and text.count("^") <= _MAX_POWERS
            and not _REFUSED.search(text)
            and not _WORD.search(_CASES.sub("", text))
            for text in (gold, answer)
        )
        and _separators(gold) == _separators(answer)
    )


def _separators(text: str) -> list[str] | None:
    # A list or an equation where the reference has none is another shape.
    try:
        return [sign.text for sign in outside(tokenize(text)) if sign.text in _SEPARATORS]
    except Unreadable:
        return None


def verified(gold: str, answer: str) -> bool:
    """Says whether math-verify holds two normalized answers for equal, within some seconds.

    Equations and inequalities are compared side by side: it solves them, and two without a solution
    are equal to it. A limit must be that from both sides, of which it takes one.
    """
    left, right = sides(gold), sides(answer)
    # A side that is the same is not asked about: `f(x)` is nothing that it could compute.
    return len(left) == len(right) and all(
        a == b or all(_is_verified(_from(a, side), _from(b, side)) for side in _limit_sides(a, b))
        for a, b in zip(left, right, strict=True)
    )


def _limit_sides(*texts: str) -> str:
    return "+-" if any(map(_TWO_SIDED.search, texts)) else "+"


def _from(text: str, side: str) -> str:
    """An expression with its limits from one side."""
    return _TWO_SIDED.sub(rf"\1^{{{side}}}\2", text)


def _is_verified(gold: str, answer: str) -> bool:
    # Its alarms work in a main thread only; elsewhere the row's own clock has to do.
    seconds = _SECONDS if threading.current_thread() is threading.main_thread() else None
    try:
        left, right = (
            parse(
                f"${text}$",
                extraction_config=_LATEX,
                fallback_mode="no_fallback",
                parsing_timeout=seconds,
            )
            for text in (gold, answer)
        )
        return bool(left and right and verify(left, right, timeout_seconds=seconds))
    except (Exception, TimeoutException):  # noqa: BLE001 - whatever SymPy raises, it is no proof
        return False
