# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Soft punishment of completions near the length limit."""

from __future__ import annotations

from typing import Any

EXAMPLE: dict[str, Any] = {"prompt": "What is 2+2?", "completion": "4", "columns": {}}


def overlong(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],  # noqa: ARG001 - lengths are in tokens
    completion_ids: list[list[int]],
    *,
    max_tokens: int = 20480,
    cache_tokens: int = 4096,
    **_: Any,
) -> list[float | None]:
    """Gives DAPO's soft overlong punishment.

    Contract: equation 13 of https://arxiv.org/abs/2503.14476. For a completion of `n` tokens, 0.0
    if `n <= max_tokens - cache_tokens`; `((max_tokens - cache_tokens) - n) / cache_tokens` up to
    `max_tokens`; -1.0 beyond. Defaults are the paper's.

    Args:
        prompts: not used.
        completions: not used.
        completion_ids: token ids of the completions.
        max_tokens: L_max, the length from which the punishment is whole.
        cache_tokens: L_cache, the length over which it grows; at most `max_tokens`.

    Example:
        `overlong([""], [""], [[1] * 18432])` gives `[-0.5]`.
    """
    if not 0 < cache_tokens <= max_tokens:
        raise ValueError(f"`cache_tokens` must be in 1 to {max_tokens}, got {cache_tokens}.")
    expected = max_tokens - cache_tokens
    return [max(-1.0, min(0.0, (expected - len(ids)) / cache_tokens)) for ids in completion_ids]
