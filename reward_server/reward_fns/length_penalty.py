# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Linear penalty of long completions."""

from __future__ import annotations

from typing import Any

from reward_server.grading_errors import BadParameter

EXAMPLE: dict[str, Any] = {"prompt": "What is 2+2?", "completion": "4", "columns": {}}


def length_penalty(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],  # noqa: ARG001 - lengths are in tokens
    completion_ids: list[list[int]],
    *,
    free_tokens: int = 0,
    max_tokens: int = 4096,
    **_: Any,
) -> list[float | None]:
    """Gives 0.0 to short completions and falls linearly to -1.0 at the longest.

    Contract: `-min(1, max(0, n - free_tokens) / (max_tokens - free_tokens))` for `n` tokens.

    Args:
        prompts: not used.
        completions: not used.
        completion_ids: token ids of the completions.
        free_tokens: length that costs nothing.
        max_tokens: length from which the penalty is -1.0; above `free_tokens`.

    Example:
        `length_penalty([""], [""], [[1] * 1024])` gives `[-0.25]`.
    """
    if not 0 <= free_tokens < max_tokens:
        raise BadParameter(f"`free_tokens` must be in 0 to {max_tokens - 1}, got {free_tokens}.")
    span = max_tokens - free_tokens
    return [-min(1.0, max(0, len(ids) - free_tokens) / span) for ids in completion_ids]
