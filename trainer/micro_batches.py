# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Micro-batches: cut from batches, and their rows joined and cut again. No JAX.

Legend: b rows that this process owns, C columns of packed rewards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.columns import Columns

logger = logging.getLogger(__name__)


def cut(batches: Iterable[Columns], size: int, *, per_update: int) -> Iterator[Columns]:
    """Cuts batches into micro-batches; every value stays the object that it is.

    Tunix's own makes arrays of the values, which turns ints into text and fails at ragged lists.

    Args:
        batches: columns that are 1-D arrays.
        size: prompts of a micro-batch. What a batch leaves goes in front of the next one.
        per_update: micro-batches of an update; Tunix leaves out an update that is not whole.
    """
    rest: Columns = {}
    given = 0
    for batch in batches:
        rest = {k: np.concatenate([rest[k], v]) for k, v in batch.items()} if rest else dict(batch)
        while len(rest["prompts"]) >= size:
            given += 1
            yield {name: values[:size] for name, values in rest.items()}
            rest = {name: values[size:] for name, values in rest.items()}
    left = (len(rest["prompts"]) if rest else 0) + given % per_update * size
    if left:
        logger.warning(
            "the last prompts make no whole update and are left out prompts=%d on this process",
            left,
        )


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
