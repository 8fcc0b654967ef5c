# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of micro-batches: joined in the order in which a process holds them, and cut again. No JAX.

Legend: b rows that this process owns, C columns of packed rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_ids_of(trajectory_ids: Sequence[str], num_generations: int) -> NDArray[np.int64]:
    """Reads global row ids from Tunix's trajectory ids, "<prompt>_<generation>"."""
    pairs = [trajectory_id.split("_") for trajectory_id in trajectory_ids]
    return np.array([int(p) * num_generations + int(g) for p, g in pairs], np.int64)


def merge_local(
    micro_batches: list[Any], sizes: list[int], layout: Any, *, replicated: bool
) -> dict[str, list[Any]]:
    """Merges micro-batches into this process's rows, in the order in which it holds them."""
    starts = np.cumsum([0, *sizes])
    held = [layout.local_rows(n) for n in sizes]
    numbers = np.concatenate([start + rows for start, rows in zip(starts, held, strict=False)])
    order = np.searchsorted(numbers, layout.merged_local_rows(sizes))
    merged = {}
    for name in micro_batches[0]:
        values: list[Any] = []
        for batch, rows in zip(micro_batches, held, strict=True):
            column = list(batch[name])
            values.extend([column[i] for i in rows] if replicated else column)
        merged[name] = [values[i] for i in order]
    return merged


def rows_of_part(
    packed: NDArray[np.float32], sizes: list[int], index: int, owned_shards: int
) -> NDArray[np.float32]:
    """Rows of micro-batch `index` among owned rows that lie shard by shard."""
    if not owned_shards:
        return packed
    total = sum(sizes)
    per_shard = packed.reshape(owned_shards, -1, packed.shape[1])
    width = per_shard.shape[1]
    start = sum(sizes[:index]) * width // total
    stop = sum(sizes[: index + 1]) * width // total
    return per_shard[:, start:stop].reshape(-1, packed.shape[1])
