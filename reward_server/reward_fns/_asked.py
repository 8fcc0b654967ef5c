# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
r"""Finds the value in an answer that repeats what was asked: `m + n = 301 + 17 = 318`."""

from __future__ import annotations

import re

from reward_server.reward_fns._equality import same_value
from reward_server.reward_fns._evaluate import symbols
from reward_server.reward_fns._expression import Tree, read
from reward_server.reward_fns._normalize import Unreadable
from reward_server.reward_fns._tokens import RELATIONS, outside, sides, split, tokenize

# Words that are no commands: a sentence, or several answers.
_WORDS = re.compile(r"(?<![\\A-Za-z])(?:or|and|not|[A-Za-z]{4,})(?![A-Za-z])", re.IGNORECASE)
_INVERTIBLE = ("exp", "ln", "log", "lg", "abs", "floor", "ceil")


def value_of(answer: str) -> str | None:
    """Returns the last side of a normalized answer if the others are the same by another name.

    None if there is no other side, and for an equation that is yet to be solved: `2x = 6` is no 6.

    Raises:
        TooBig: a side is not computed.
    """
    try:
        tokens = tokenize(answer)
        split(tokens, "=")  # refuses brackets that don't match
        signs = {sign.text for sign in outside(tokens)} & {*RELATIONS, ",", ";"}
    except Unreadable:
        return None
    parts = sides(answer)
    if signs != {"="} or len(parts) < 2:
        return None
    first, *others, last = parts
    if not first or _WORDS.search(first) or _is_equation(first):
        return None
    known = [_tree(side) for side in others]
    if (asked := _tree(first)) is not None and not symbols(asked):
        known.append(asked)
    if not known:
        return last
    tree = _tree(last)
    if tree is None:
        return None
    return last if all(side is not None and same_value(side, tree) for side in known) else None


def _is_equation(side: str) -> bool:
    """Says whether a side has one unknown, which the equation gives."""
    tree = _tree(side)
    return tree is not None and len(symbols(tree)) == 1 and not _has_function(tree)


def _has_function(tree: Tree) -> bool:
    if tree[0] == "func" and tree[1] not in _INVERTIBLE:
        return True
    return any(_has_function(part) for part in tree[1:] if isinstance(part, tuple))


def _tree(side: str) -> Tree | None:
    try:
        return read(tokenize(side))
    except Unreadable:
        return None
