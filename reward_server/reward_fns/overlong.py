# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Soft punishment of completions near the length limit."""

from __future__ import annotations

from typing import Any

from reward_server.grading_errors import BadParameter

EXAMPLE: dict[str, Any] = {"prompt": "What is 2+2?", "completion": "4", "columns": {}}


def overlong(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    completion_ids: list[list[int]],
    *,
    max_tokens: int = 20480,
    cache_tokens: int = 4096,
    penalty: float = 1.0,
    unit: str = "tokens",
    clip: bool = True,
    **_: Any,
) -> list[float | None]:
    """Gives DAPO's soft overlong punishment.

    Contract: equation 13 of https://arxiv.org/abs/2503.14476. For a completion of `n` tokens, 0.0
    if `n <= max_tokens - cache_tokens`; `((max_tokens - cache_tokens) - n) / cache_tokens` up to
    `max_tokens`; -1.0 beyond; all times `penalty`. Defaults are the paper's. With
    `unit = "characters"` and `clip = false` it gives what `reward_shaping` of Tunix 0.1.7 gives,
    which counts characters and has no lowest value.

    Args:
        prompts: not used.
        completions: completions as text.
        completion_ids: token ids of the completions.
        max_tokens: L_max, the length from which the punishment is whole.
        cache_tokens: L_cache, the length over which it grows; at most `max_tokens`.
        penalty: the whole punishment; at least 0.
        unit: what the lengths count: "tokens" or "characters".
        clip: whether the punishment stops growing at `max_tokens`.

    Example:
        `overlong([""], [""], [[1] * 18432])` gives `[-0.5]`.
    """
    if not 0 < cache_tokens <= max_tokens:
        raise BadParameter(f"`cache_tokens` must be in 1 to {max_tokens}, got {cache_tokens}.")
    if not penalty >= 0:
        raise BadParameter(f"`penalty` must be >= 0, got {penalty}.")
    if unit not in ("tokens", "characters"):
        raise BadParameter(f'`unit` must be "tokens" or "characters", got {unit!r}.')
    expected = max_tokens - cache_tokens
    counted = completion_ids if unit == "tokens" else completions
    shares = [min(0.0, (expected - len(completion)) / cache_tokens) for completion in counted]
    return [penalty * (max(-1.0, share) if clip else share) for share in shares]
