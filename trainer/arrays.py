# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Local rows to global arrays and back.

Legend: n global rows, b rows of this process, S data shards, R replicas.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from trainer.shards import RowLayout


class RowArrays:
    """Places rows on a mesh whose data axes shard them.

    Attributes:
        mesh: the mesh.
        data_axes: axes that the rows are sharded over.
        layout: which rows this process holds.
        replica_axes: the other axes of the mesh.
    """

    def __init__(self, mesh: Mesh, data_axes: tuple[str, ...]) -> None:
        """Reads the layout of the mesh.

        Raises:
            ValueError: an axis does not exist or is not of the type Auto, or this process's devices
                are not a box of the mesh.
        """
        others = {
            str(name): kind.name
            for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
            if kind != AxisType.Auto
        }
        if others:
            raise ValueError(
                f"the axes of the mesh must be of the type Auto, got {others}. Make the mesh with"
                " jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * number of axes)."
            )
        processes = np.vectorize(lambda device: device.process_index, otypes=[np.int64])
        self.mesh = mesh
        self.data_axes = data_axes
        self.layout = RowLayout.from_device_grid(
            processes(mesh.devices), mesh.axis_names, data_axes, jax.process_index()
        )
        # Tunix compares specs by equality: one axis stands alone there, several are a tuple.
        self._rows = data_axes[0] if len(data_axes) == 1 else data_axes
        self.replica_axes = tuple(a for a in mesh.axis_names if a not in data_axes)
        spec = PartitionSpec(self._rows)
        self._part, self._join = _part_fn(mesh, spec), _join_fn(mesh, spec)

    @property
    def row_sharding(self) -> NamedSharding:
        """Sharding of the leading dimension over the data axes."""
        return NamedSharding(self.mesh, PartitionSpec(self._rows))

    def row_sharding_of(self, ndim: int) -> NamedSharding:
        """The same for arrays of `ndim` dimensions whose others the compiler may shard."""
        others = [PartitionSpec.UNCONSTRAINED] * (ndim - 1)
        return NamedSharding(self.mesh, PartitionSpec(self._rows, *others))

    @property
    def replicated(self) -> NamedSharding:
        """Sharding of a value that every device holds whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def from_local_rows(self, local: NDArray[Any], n: int) -> jax.Array:
        """Makes a global array [n, ...] of the rows [b, ...] that each process holds.

        Processes that hold the same rows must pass the same values.

        Raises:
            ValueError: b is not the number of rows that this process holds of n.
        """
        b = len(self.layout.local_rows(n))
        if len(local) != b:
            raise ValueError(
                f"process {self.layout.process_index} must pass {b} of {n} rows, got {len(local)}."
            )
        array: jax.Array = jax.make_array_from_process_local_data(
            self.row_sharding, np.ascontiguousarray(local), (n, *local.shape[1:])
        )
        return array

    def owned_rows(self, array: jax.Array) -> NDArray[Any]:
        """Copies the rows of a global array that this process owns to the host, ascending."""
        parts = {
            shard.index[0].start or 0: shard.data
            for shard in array.addressable_shards
            if shard.replica_id == 0
        }
        if not parts:
            return np.empty((0, *array.shape[1:]), array.dtype)
        return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])

    def local_rows(self, array: jax.Array) -> NDArray[Any]:
        """Copies the rows of a global array that this process holds to the host, ascending."""
        parts = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
        return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])

    def from_owned_rows(self, owned: NDArray[Any], n: int) -> jax.Array:
        """Makes [R, n, C] of the values [b, C] of owned rows, zeros on the other replicas.

        Its sum over R has every row once, exactly: the replicas of a row, on whichever process,
        get the bytes of the one that owns it.
        """
        layout = self.layout
        rows, replicas = layout.local_rows(n), layout.local_replicas
        mine = layout.owned_rows(n)
        if len(owned) != len(mine):
            raise ValueError(
                f"process {layout.process_index} owns {len(mine)} of {n} rows, got {len(owned)}."
            )
        local = np.zeros((len(replicas), len(rows), owned.shape[1]), owned.dtype)
        if 0 in replicas:
            local[replicas.index(0), np.searchsorted(rows, mine)] = owned
        spec = PartitionSpec(self.replica_axes or None, self._rows)
        shape = (len(layout.grid[0]), n, owned.shape[1])
        sharding = NamedSharding(self.mesh, spec)
        array: jax.Array = jax.make_array_from_process_local_data(sharding, local, shape)
        return array

    def part_of_each_shard(self, tree: Any, part: slice) -> Any:
        """Takes these rows of every shard; moves nothing between devices.

        All arrays of the tree must have the same number of rows.
        """
        rows = len(jax.tree.leaves(tree)[0])
        if part.stop - part.start == self.layout.rows_per_shard(rows):
            return tree
        size = part.stop - part.start
        return self._part(tree, np.int32(part.start), size=size)

    def join_each_shard(self, trees: list[Any]) -> Any:
        """Joins parts of every shard again, the inverse of `part_of_each_shard`."""
        if len(trees) == 1:
            return trees[0]
        return self._join(trees)


def _part_fn(mesh: Mesh, rows: PartitionSpec) -> Any:
    """Makes the program that takes `size` rows of every shard from `start` on."""

    def part(tree: Any, start: jax.Array, *, size: int) -> Any:
        def take(tree: Any, start: jax.Array) -> Any:
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, size), tree)

        specs = (rows, PartitionSpec())
        return jax.shard_map(take, mesh=mesh, in_specs=specs, out_specs=rows)(tree, start)

    return jax.jit(part, static_argnames="size")


def _join_fn(mesh: Mesh, rows: PartitionSpec) -> Any:
    """Makes the program that joins parts of every shard."""

    def join(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *xs: jax.numpy.concatenate(xs), *trees)

    return jax.jit(jax.shard_map(join, mesh=mesh, in_specs=rows, out_specs=rows))
