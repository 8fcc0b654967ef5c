# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of models and exceptions, made fit for one line of a terminal."""

from __future__ import annotations


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
