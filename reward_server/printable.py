# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of models and exceptions, made fit for messages, and for one line of a terminal."""

from __future__ import annotations

import re

# Halves of surrogate pairs, which UTF-8 can't hold, and what moves the cursor of a terminal.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def sendable(text: str) -> str:
    r"""Escapes what a message can't hold or a terminal would act on; tabs and new lines stay.

    Example:
        >>> sendable("got \ud800\x1b[2J")
        'got \\ud800\\x1b[2J'
    """
    return _UNFIT.sub(lambda found: repr(found[0])[1:-1], text)


def printable(text: str, limit: int) -> str:
    r"""Escapes what is no printable character, and leaves out the middle of a long text.

    Example:
        >>> printable("a\nbcdefghijklmn", 12)
        'a\\nbc...klmn'
    """
    if len(text) > limit:
        half = (limit - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
