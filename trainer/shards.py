# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rows of a global batch this process holds and which it owns. Pure NumPy.

A batch of n rows is cut into S data shards of n / S adjacent rows. Every shard lies on R
devices, its replicas (tensor parallelism and the like), on one process or on several. The
process of replica 0 owns the shard: it alone sends the rows to a reward server.

Legend: n global rows, b rows held by this process, S data shards, R replicas.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Rows of this process, as the mesh places them.

    Attributes:
        grid: process index of replica r of data shard s, [S][R].
        process_index: this process.
    """

    grid: tuple[tuple[int, ...], ...]
    process_index: int

    def __post_init__(self) -> None:
        """Checks that this process holds a box of the grid.

        Raises:
            ValueError: it holds none, or its replicas differ from shard to shard.
        """
        grid = np.asarray(self.grid)
        mine = grid == self.process_index
        if not mine.any():
            raise ValueError(f"process {self.process_index} must hold a device of the mesh.")
        box = np.ix_(mine.any(axis=1), mine.any(axis=0))
        if not mine[box].all():
            raise ValueError(
                f"process {self.process_index} must hold the same replicas of each of its data"
                f" shards, got grid {self.grid}. Order the devices of the mesh by process."
            )

    @classmethod
    def from_device_grid(
        cls,
        processes: NDArray[np.int64],
        axis_names: Sequence[str],
        data_axes: Sequence[str],
        process_index: int,
    ) -> RowLayout:
        """Reads the layout off a mesh.

        Args:
            processes: process index of each device of the mesh, one dimension per axis.
            axis_names: names of these dimensions.
            data_axes: the axes that the rows are sharded over, in that order.
            process_index: this process.

        Raises:
            ValueError: a data axis is not an axis of the mesh.

        Example:
            >>> grid = np.array([[0, 0], [1, 1]])
            >>> RowLayout.from_device_grid(grid, ("fsdp", "tp"), ("fsdp",), 1).local_rows(4)
            array([2, 3])
        """
        unknown = [axis for axis in data_axes if axis not in axis_names]
        if unknown:
            raise ValueError(
                f"`data_sharding_axis` must name axes of the mesh {tuple(axis_names)},"
                f" got {unknown[0]!r}."
            )
        order = [axis_names.index(axis) for axis in data_axes]
        shards = int(np.prod([processes.shape[i] for i in order], dtype=np.int64))
        rest = [i for i in range(processes.ndim) if i not in order]
        grid = np.transpose(processes, order + rest).reshape(shards, -1)
        return cls(grid=tuple(map(tuple, grid.tolist())), process_index=process_index)

    @property
    def shards(self) -> int:
        """S, the number of data shards."""
        return len(self.grid)

    @property
    def local_shards(self) -> list[int]:
        """Data shards that this process holds, ascending."""
        return [s for s, row in enumerate(self.grid) if self.process_index in row]

    @property
    def owned_shards(self) -> list[int]:
        """Data shards whose replica 0 is on this process, ascending."""
        return [s for s, row in enumerate(self.grid) if row[0] == self.process_index]

    @property
    def local_replicas(self) -> list[int]:
        """Replica numbers that this process holds of each of its shards."""
        return [r for r, p in enumerate(self.grid[self.local_shards[0]]) if p == self.process_index]

    @property
    def owner_processes(self) -> list[int]:
        """Processes that own a shard, ascending."""
        return sorted({row[0] for row in self.grid})

    def rows_per_shard(self, n: int) -> int:
        """Rows of one shard of n rows.

        Raises:
            ValueError: n can't be split over the shards.
        """
        if n <= 0 or n % self.shards:
            raise ValueError(
                f"the number of rows must be a multiple of the {self.shards} data shards, got {n}."
                " Change the batch size or num_generations."
            )
        return n // self.shards

    def global_rows(self, b: int) -> int:
        """Number of global rows when every data shard has what b local rows give this process.

        Raises:
            ValueError: b can't be split over this process's shards.
        """
        held = len(self.local_shards)
        if b <= 0 or b % held:
            raise ValueError(
                f"the local rows must be a multiple of this process's {held} data shards, got {b}."
                " Change the batch size or num_generations."
            )
        return b // held * self.shards

    def local_rows(self, n: int) -> Rows:
        """Rows in [0, n) that this process holds, ascending: int64 [b]."""
        per = self.rows_per_shard(n)
        return np.concatenate([np.arange(s * per, (s + 1) * per) for s in self.local_shards])

    def owned_rows(self, n: int) -> Rows:
        """Rows in [0, n) that this process sends to its reward server, ascending."""
        per = self.rows_per_shard(n)
        owned = [np.arange(s * per, (s + 1) * per) for s in self.owned_shards]
        return np.concatenate([np.empty(0, np.int64), *owned])

    def merged_local_rows(self, sizes: Sequence[int]) -> Rows:
        """Rows of several micro-batches in the order in which this process holds them merged.

        Merged micro-batches lie shard by shard, so that cutting them apart again moves nothing:
        shard 0 has its part of micro-batch 0, of micro-batch 1, and so on; then shard 1.

        Args:
            sizes: global rows of each micro-batch.

        Returns:
            Row numbers, counted through the micro-batches one after the other: int64 [b].
        """
        starts = np.cumsum([0, *sizes])
        parts = []
        for s in self.local_shards:
            for start, size in zip(starts, sizes, strict=False):
                per = self.rows_per_shard(size)
                parts.append(start + np.arange(s * per, (s + 1) * per))
        return np.concatenate(parts)

    def merged_parts(self, sizes: Sequence[int]) -> list[slice]:
        """Slices of each shard's rows that are micro-batches of these sizes, merged as above.

        Args:
            sizes: global rows of each micro-batch.
        """
        ends = np.cumsum([0, *(self.rows_per_shard(size) for size in sizes)]).tolist()
        return [slice(*ends[i : i + 2]) for i in range(len(sizes))]


def check_whole_groups(layout: RowLayout, n: int, num_generations: int) -> None:
    """Checks that local prompts, each repeated num_generations times, stay adjacent rows.

    Raises:
        ValueError: a group of this process's prompts would be torn apart by its shards.
    """
    rows = layout.local_rows(n)
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    for run in runs:
        if run[0] % num_generations or len(run) % num_generations:
            raise ValueError(
                f"rows {run[0]}..{run[-1]} of process {layout.process_index} must hold whole"
                f" groups of num_generations={num_generations}. Use a larger local batch or"
                " data='replicated'."
            )
