# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a text that chooses one letter: `B`, `(B)`, `B. Paris`, `option B`."""

from __future__ import annotations

import re

_NOISE = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:rm|bf)|[,; !])|[${}*_`\"\u201c\u201d]")
_CHOICE = re.compile(
    r"(?:(?:the|correct|final|answer|option|choice|is)\b[ :]*)*"
    r"[(\[]?(?P<letter>[A-J])(?P<close>[)\]]? ?[.:!]?)(?P<rest> .*)?",
    re.IGNORECASE,
)
# The text of a choice may hold any words, but no other letter with a mark, or after a joining word.
_OTHER = re.compile(
    r"(?<![A-Za-z])(?:[(\[][A-J][)\]]|[A-J][)\]:]|[A-J]\.(?= |$)(?! [a-z]))"
    r"|\b(?:or|and|maybe|perhaps|possibly|either|not|also|but)[ ,]+(?:option |choice )?"
    r"[(\[]?[A-J]\b(?!')"
    r"|[?/&,] ?[A-J]\b(?!')"
)
_DOUBT = re.compile(r"(?:or|and|maybe|perhaps|possibly|either|not|[A-HJ])?[ ?!.]*", re.IGNORECASE)


def letter(text: str) -> str | None:
    """Returns the one letter from A to J that a text chooses, or None."""
    text = " ".join(_NOISE.sub("", text).split())
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    rest = (match["rest"] or "").strip(" .")
    if rest and (match["letter"].islower() or not match["close"].strip()):
        return None
    if rest and (_OTHER.search(rest) or _DOUBT.fullmatch(rest)):
        return None
    return match["letter"].upper()
