# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Which prompts of a global batch a process iterates, and which batches the data shards divide.

Pure: no JAX. Legend: b prompts of this process, n of all processes, G generations.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from trainer.shards import RowLayout, check_whole_groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromptShare:
    """This process's part of each batch.

    Attributes:
        layout: where rows lie.
        num_generations: G, rows of a prompt.
        replicated: whether this process iterates the prompts of all.
    """

    layout: RowLayout
    num_generations: int
    replicated: bool

    @property
    def local_shards(self) -> list[int] | None:
        """Data shards whose prompts this process iterates; None for those of all processes."""
        return None if self.replicated else self.layout.local_shards

    def rows(self, b: int) -> tuple[int, NDArray[np.int64]]:
        """Rows that b prompts make.

        Returns:
            Global rows n * G, and the numbers of this process's among them: int64 [b * G].

        Raises:
            ValueError: the shards don't divide them, or a group would be torn apart.
        """
        layout, g = self.layout, self.num_generations
        if self.replicated:
            layout.rows_per_shard(b * g)
            return b * g, np.arange(b * g)
        n = layout.global_rows(b * g)
        check_whole_groups(layout, n, g)
        return n, layout.local_rows(n)

    def prompts(self, b: int) -> tuple[int, NDArray[np.int64]]:
        """Global prompts n, and the numbers of this process's b among them: int64 [b].

        Raises:
            ValueError: see `rows`.
        """
        n, rows = self.rows(b)
        g = self.num_generations
        return n // g, rows[::g] // g

    def usable(self, b: int) -> int:
        """The most of b prompts that the shards divide; 0 if no number of them does."""
        for size in range(b, 0, -1):
            try:
                self.rows(size)
            except ValueError:
                continue
            return size
        return 0
