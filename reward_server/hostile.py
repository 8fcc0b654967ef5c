# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Completions that reward functions must survive: a policy samples them sooner or later."""

from __future__ import annotations

_MANY = 100_000
_DEEP = 10_000

_TEXTS = {
    "1 MB of letters": "a" * 2**20,
    "NUL": "\0",
    # In this order: the other way round, JSON would make one character of them.
    "lone surrogates": "\udfff\ud800",
    "brackets, nested": "[" * _DEEP + "]" * _DEEP,
    "brackets, never closed": "[(" * _DEEP,
    "braces, nested": '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "LaTeX, nested": r"\boxed{" + r"\frac{1}{" * _DEEP + "2" + "}" * _DEEP + "}",
    "very long number": "9" * _MANY,
    "huge exponent": "1e999999999",
    "unicode digits": "\u0664\u0662 \uff14\uff12 \u2463 \u00bd \u56db",
    "control characters": "".join(map(chr, [*range(1, 32), 127, *range(0x80, 0xA0), 0x202E])),
    "100,000 newlines": "\n" * _MANY,
}


def completions(example: str) -> dict[str, str]:
    """Makes hostile completions by their names.

    Args:
        example: a completion that the function knows how to read; what is hostile comes alone and
            after it.
    """
    made = {"empty": "", **_TEXTS}
    if example:
        made |= {f"example and {name}": example + text for name, text in _TEXTS.items()}
    return made
