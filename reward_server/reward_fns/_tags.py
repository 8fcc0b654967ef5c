# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Think and answer blocks of a completion, by counting and finding: linear, no backtracking."""

from __future__ import annotations

from reward_server.reward_fns._extract import without_special_text


def tags(think_tag: str, answer_tag: str) -> tuple[str, str, str, str]:
    """Returns the four tags in the order in which they must stand."""
    return (f"<{think_tag}>", f"</{think_tag}>", f"<{answer_tag}>", f"</{answer_tag}>")


def pieces(completion: object, expected: tuple[str, str, str, str]) -> list[str] | None:
    """Returns the five texts around the four tags, or None.

    None unless each tag stands there once, in order, and both blocks hold more than white space.
    """
    text = without_special_text(completion)
    if any(text.count(tag) != 1 for tag in expected):
        return None
    found: list[str] = []
    for tag in expected:
        before, tag_found, text = text.partition(tag)
        if not tag_found:
            return None
        found.append(before)
    found.append(text)
    return found if found[1].strip() and found[3].strip() else None
