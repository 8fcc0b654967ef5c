# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of every process, on every process: agreed on first, then one collective."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from trainer.agreement import Agreement, Attempt
from trainer.config import MAX_MESSAGE_BYTES
from trainer.errors import InvalidRequest

# Sizes are rounded up to a power of two, so that few programs are compiled.
_LEAST_BYTES = 4096


def gather_bytes(agreement: Agreement, place: str, mine: Attempt) -> list[bytes]:
    """Gathers bytes of all processes, or raises on all if one of them has none.

    All processes must call it at the same place.

    Args:
        agreement: of all processes.
        place: where the program is.
        mine: bytes of this process, or what kept it from having any.

    Raises:
        ProcessesDisagree: a process failed; the message has its error.
        InvalidRequest: a process has more bytes than a message to a reward server may have.
    """
    value: dict[str, Any] = {"bytes": 0 if mine.error else len(mine.value)}

    def decide(values: list[dict[str, Any]]) -> list[int]:
        sizes = [value["bytes"] for value in values]
        if max(sizes) > MAX_MESSAGE_BYTES:
            raise InvalidRequest(
                f"{place}: a process must gather at most {MAX_MESSAGE_BYTES} bytes, got"
                f" {max(sizes)}. Use smaller rollout micro-batches or another reward_path.",
                reason="TOO_BIG",
            )
        return sizes

    sizes = agreement.exchange(place, value, decide, error=mine.error)
    largest = max(sizes)
    if agreement.process_count == 1:
        return [mine.value]
    buffer = np.zeros(gathered_width(largest), np.uint8)
    buffer[: len(mine.value)] = np.frombuffer(mine.value, np.uint8)
    rows = multihost_utils.process_allgather(buffer)
    return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]


def gathered_width(size: int) -> int:
    """Bytes that each process contributes when the largest contribution has `size`.

    Example:
        >>> gathered_width(5000)
        8192
    """
    return max(_LEAST_BYTES, 1 << max(size - 1, 0).bit_length())
