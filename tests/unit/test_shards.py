# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic of rows, as tables."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.shards import RowLayout, check_whole_groups

# name: (process of each device, axis names, data axes, owners of 8 rows by process)
MESHES = {
    "one process": ([[0, 0], [0, 0]], ("fsdp", "tp"), ("fsdp",), [range(8)]),
    "fsdp across": ([[0, 0], [1, 1]], ("fsdp", "tp"), ("fsdp",), [range(4), range(4, 8)]),
    "tp across": ([[0, 1], [0, 1]], ("fsdp", "tp"), ("fsdp",), [range(8), []]),
    "4 processes": ([[0, 1], [2, 3]], ("fsdp", "tp"), ("fsdp",), [range(4), [], range(4, 8), []]),
    "interleaved": ([[0], [1], [0], [1]], ("fsdp", "tp"), ("fsdp",), [[0, 1, 4, 5], [2, 3, 6, 7]]),
    "two data axes": ([[[0], [1]], [[0], [1]]], ("dp", "fsdp", "tp"), ("dp", "fsdp"), None),
    "order of axes": ([[[0], [1]], [[0], [1]]], ("dp", "fsdp", "tp"), ("fsdp", "dp"), None),
}
EXPECTED = {
    "two data axes": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "order of axes": [range(4), range(4, 8)],
}


def layouts(name: str) -> list[RowLayout]:
    """The layout of each process of a mesh of the table."""
    grid, names, data, _ = MESHES[name]
    processes = np.array(grid)
    return [
        RowLayout.from_device_grid(processes, names, data, p)
        for p in range(int(processes.max()) + 1)
    ]


@pytest.mark.parametrize("name", MESHES)
def test_owned_rows(name: str) -> None:
    """Each process owns the rows whose replica 0 it holds."""
    expected = MESHES[name][3] or EXPECTED[name]
    for layout, rows in zip(layouts(name), expected, strict=True):
        assert layout.owned_rows(8).tolist() == list(rows)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("n", [8, 16, 64])
def test_coverage(name: str, n: int) -> None:
    """Owned rows of all processes are all rows, each once; a process holds what it owns."""
    owned = [layout.owned_rows(n).tolist() for layout in layouts(name)]
    assert sorted(row for rows in owned for row in rows) == list(range(n))
    for layout in layouts(name):
        assert set(layout.owned_rows(n)) <= set(layout.local_rows(n))
        assert layout.global_rows(len(layout.local_rows(n))) == n


@pytest.mark.parametrize("name", MESHES)
def test_merged_rows_are_parts_of_each_shard(name: str) -> None:
    """Merged micro-batches lie shard by shard, and hold the rows of each micro-batch."""
    sizes = [8, 16]
    for layout in layouts(name):
        merged = layout.merged_local_rows(sizes).reshape(len(layout.local_shards), -1)
        first = merged[:, : 8 // layout.shards].reshape(-1)
        assert first.tolist() == layout.local_rows(8).tolist()
        rest = merged[:, 8 // layout.shards :].reshape(-1)
        assert rest.tolist() == (8 + layout.local_rows(16)).tolist()


def test_rows_that_do_not_divide_are_refused() -> None:
    """Never fall back to replicated: the error has the size and the remedy."""
    with pytest.raises(ValueError, match=r"multiple of the 2 data shards, got 7.*batch size"):
        layouts("fsdp across")[0].local_rows(7)
    with pytest.raises(ValueError, match="got 0"):
        layouts("fsdp across")[0].local_rows(0)


def test_unknown_axis_is_refused() -> None:
    """A data axis that the mesh lacks is named."""
    with pytest.raises(ValueError, match="got 'data'"):
        RowLayout.from_device_grid(np.zeros((2, 2), int), ("fsdp", "tp"), ("data",), 0)


def test_diagonal_mesh_is_refused() -> None:
    """Devices of a process that are no box of the mesh can't be fed by local rows."""
    with pytest.raises(ValueError, match="Order the devices"):
        RowLayout.from_device_grid(np.array([[0, 1], [1, 0]]), ("fsdp", "tp"), ("fsdp",), 0)


def test_torn_groups_of_local_prompts_are_refused() -> None:
    """Local prompts whose generations would not be adjacent rows are an error."""
    layout = layouts("interleaved")[0]
    check_whole_groups(layout, 16, 4)
    with pytest.raises(ValueError, match="whole groups of num_generations=4"):
        check_whole_groups(layout, 8, 4)


def test_merged_parts_are_the_micro_batches() -> None:
    """Cutting each shard of the merged rows gives the rows that were merged."""
    layout = RowLayout(grid=((0,), (0,)), process_index=0)
    sizes = [4, 2, 6]
    merged = layout.merged_local_rows(sizes).reshape(2, -1)
    parts = [merged[:, part].reshape(-1).tolist() for part in layout.merged_parts(sizes)]
    assert parts == [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11]]
