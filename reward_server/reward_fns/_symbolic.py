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

_SECONDS = 2
_MAX_CHARACTERS = 300
_MAX_POWERS = 8
_CALCULUS = re.compile(
    r"\\(?:int|iint|oint|sum|prod|lim|frac\s*\{\s*d|partial|nabla|begin\{cases\}|det|gcd|lcm"
    r"|max|min|Re|Im|arg|bmod|pmod|mod|cap|in|forall|exists|to|rightarrow|vec|hat|overline)\b"
)
_REFUSED = re.compile(
    r"\\text|[0-9]{4,}\s*!|\^\s*\{?\s*[0-9(]{4,}|\^[^{}]{0,3}\^|!\s*!|['\"@#`]|__"
)
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{4,}")
_LATEX = [LatexExtractionConfig()]


def is_candidate(text: str) -> bool:
    """Says whether a normalized answer is small enough, and of a kind to ask about."""
    return (
        len(text) <= _MAX_CHARACTERS
        and text.isascii()
        and bool(_CALCULUS.search(text))
        and text.count("^") <= _MAX_POWERS
        and not _REFUSED.search(text)
        and not _WORD.search(text.replace("begin{cases}", "").replace("end{cases}", ""))
    )


def verified(gold: str, answer: str) -> bool:
    """Says whether math-verify holds two normalized answers for equal, within some seconds."""
    # Its alarms work in a main thread only; elsewhere the row's own clock has to do.
    seconds = _SECONDS if threading.current_thread() is threading.main_thread() else None
    try:
        left, right = (
            parse(
                f"${text}$",
                extraction_config=_LATEX,
                fallback_mode="no_fallback",
                parsing_timeout=seconds,  # type: ignore[arg-type]
            )
            for text in (gold, answer)
        )
        return bool(left and right and verify(left, right, timeout_seconds=seconds))
    except (Exception, TimeoutException):  # noqa: BLE001 - whatever SymPy raises, it is no proof
        return False
