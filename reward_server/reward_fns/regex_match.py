# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier by regular expression."""

from __future__ import annotations

import functools
import re
from typing import Any

from reward_server.reward_fns._extract import final_text
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "Name a year of the 1990s.",
    "completion": "1994",
    "columns": {"regex": "199[0-9]"},
}


def regex_match(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    *,
    pattern: str = "",
    whole: bool = True,
    ignore_case: bool = False,
    **columns: Any,
) -> list[float | None]:
    """Rewards completions that match a regular expression.

    Contract: the completion, up to its first end token and after its last closing think tag (an
    unclosed think block earns 0.0), without white space at its ends. The expression is `pattern`
    or, if that is empty, the row's column `regex`. Python's syntax; a dot matches no line end. An
    expression is compiled once. A text on which it backtracks for long earns 0.0.

    Args:
        prompts: not used.
        completions: texts to grade.
        pattern: the expression for all rows.
        whole: whether the whole text must match, or some part.
        ignore_case: whether case is ignored.
        **columns: columns of the rows; only `regex` is used.

    Raises:
        BadGold: the expression is missing, empty or malformed.

    Example:
        `regex_match(["?"], ["1994"], regex=["199[0-9]"])` gives `[1.0]`.
    """
    patterns = [pattern] * len(completions) if pattern else columns.get("regex")
    rewards: list[float | None] = []
    for completion, expression in zip(
        completions, patterns or [None] * len(completions), strict=True
    ):
        compiled = _compiled(expression, ignore_case)
        text = final_text(completion)
        search = compiled.fullmatch if whole else compiled.search
        rewards.append(float(text is not None and search(text.strip()) is not None))
    return rewards


def _compiled(expression: object, ignore_case: bool) -> re.Pattern[str]:
    if not isinstance(expression, str) or not expression:
        raise BadGold("regex", "a regular expression", expression)
    try:
        return _compile(expression, ignore_case)
    except re.error as error:
        raise BadGold("regex", f"a regular expression ({error})", expression) from None


@functools.lru_cache(maxsize=1024)
def _compile(expression: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE if ignore_case else 0)
