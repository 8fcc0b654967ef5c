# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a text that is one well-formed number and nothing else but its unit."""

from __future__ import annotations

import re
from fractions import Fraction

from reward_server.reward_fns._normalize import Unreadable, plain_characters
from reward_server.reward_fns._units import NUMBER_WORDS, SCALES

_MAX_CHARACTERS = 4_000
# Sign and currency in either order, then digits with or without comma groups; the exponent is
# short so that no text makes a number that is expensive to compare.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s?(?:\\?\$|\\text\{(?:dollar|euro|pound|yen|rupee)\})?\s?(?P<inner>[+-]?)"
    r"(?P<value>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<exponent>[eE][+-]?[0-9]{1,3})?(?P<tail>.*)",
    re.DOTALL,
)
# What may follow the number: a unit, words, a full stop. More digits or an operator make it
# another number, and so does a word for a multiple; a word of doubt makes it a guess.
_NOT_A_UNIT = re.compile(
    r"[0-9+=^<>?\u00d7\u00f7\[\]-]|/(?![a-z])|\{[^{}]*\{"
    rf"|\b(?:k|(?:{'|'.join(sorted({*SCALES, *NUMBER_WORDS}))})s?|halves|and|or|maybe|perhaps"
    r"|possibly|not|to)\b"
)


def one_number(text: str) -> Fraction | None:
    """Returns the exact value of the one number that a text is, or None.

    Optional sign and currency, comma groups of three, decimals, an exponent of up to three digits,
    then a unit or a full stop; bold marks and white space aside. Unicode digits and minus count as
    ASCII. A second number makes it a list of guesses: None.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    try:
        text = plain_characters(text)
    except Unreadable:
        return None
    match = _NUMBER.fullmatch(text.strip(" \t\r\n*_`:"))
    if match is None or (match["sign"] and match["inner"]):
        return None
    if _NOT_A_UNIT.search(match["tail"].lower()):
        return None
    value = Fraction(match["value"].replace(",", "") + (match["exponent"] or ""))
    return -value if "-" in match["sign"] + match["inner"] else value
