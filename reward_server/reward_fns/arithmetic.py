# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of bare integers."""

from __future__ import annotations

import re
from typing import Any

EXAMPLE: dict[str, Any] = {"prompt": "2+2=", "completion": "4", "columns": {"answer": "4"}}

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def arithmetic(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    answer: list[Any],
    **_: Any,
) -> list[float | None]:
    """Rewards completions that are exactly the right integer.

    Contract: 1.0 if the completion without surrounding white space is an ASCII integer (optional
    minus, no plus, no leading zeros, no "-0") and equals `answer`; 0.0 if not. None, a row without
    reward, if `answer` is no such integer.

    Example:
        `arithmetic(["2+2="], [" 4"], ["4"])` gives `[1.0]`.
    """
    rewards: list[float | None] = []
    for completion, gold in zip(completions, answer, strict=True):
        expected = str(gold).strip()
        if isinstance(gold, bool) or expected == "-0" or not _INTEGER.fullmatch(expected):
            rewards.append(None)
        else:
            # Spellings are unique, so equal texts are equal numbers, whatever their size.
            rewards.append(float(completion.strip() == expected))
    return rewards
