# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a text that chooses one letter: `B`, `(B)`, `B. Paris`, `option B`."""

from __future__ import annotations

import re

_NOISE = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:rm|bf)|[,; !])|[${}*_`\"]")
_CHOICE = re.compile(
    r"\s*(?:(?:the\s+)?(?:correct\s+)?(?:final\s+)?(?:answer|option|choice)\s*(?:is\b)?\s*:?\s*)*"
    r"[(\[]?\s*(?P<letter>[A-Ja-j])\s*(?P<close>[)\]]?\s*[.:]?)(?P<rest>\s.*)?",
    re.DOTALL | re.IGNORECASE,
)
_OTHER = re.compile(r"(?<![A-Za-z])[(\[]?[A-J](?![A-Za-z'])[)\]]?")
_DOUBT = re.compile(r"\b(?:or|and|maybe|perhaps|possibly|either|not)\b|[?/&]", re.IGNORECASE)


def letter(text: str) -> str | None:
    """Returns the one letter from A to J that a text chooses, or None."""
    text = _NOISE.sub("", text).strip()
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    rest = (match["rest"] or "").strip(" .")
    if rest and (match["letter"].islower() or not match["close"].strip()):
        return None
    if _OTHER.search(rest) or _DOUBT.search(rest):
        return None
    return match["letter"].upper()
