# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Memory, leftovers and noise of rollouts, on a mesh of 8 devices."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.multiprocess.conftest import run_command

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]


def run(*names: str) -> dict[str, Any]:
    """What these checks of `rollout_checks` find, from one process."""
    command = (sys.executable, "-m", "tests.multiprocess.rollout_checks", *names)
    lines = run_command(*command, timeout_s=500).splitlines()
    found: dict[str, Any] = json.loads(
        next(line for line in lines if line.startswith("RESULT ")).removeprefix("RESULT ")
    )
    return found


@pytest.fixture(scope="module")
def checks() -> dict[str, Any]:
    """What all checks find that are not long."""
    names = ["memory_8", "uneven_heads", "left_behind", "generators", "ties", "explicit_axes"]
    return run(*names, "programs")


def check_memory(memory: dict[str, float]) -> None:
    """A device never holds more of the KV cache than its share, but for what attention reads."""
    assert memory["prefill"] < 3 * memory["cache"], memory
    assert memory["decode"] < 3 * memory["cache"], memory


def test_cache_is_sharded_over_heads_from_the_start(checks):
    """With tensor parallelism over all devices."""
    check_memory(checks["memory_8"])


@pytest.mark.slow
def test_cache_is_sharded_over_rows_and_heads():
    """With data axes beside tensor parallelism."""
    for memory in run("memory_2", "memory_4").values():
        check_memory(memory)


def test_heads_that_tp_does_not_divide(checks):
    """Such a model samples, too."""
    assert len(checks["uneven_heads"]) == 8


@pytest.mark.parametrize("kind", ["ShardedRollout", "LocalRollout"])
def test_nothing_is_left_of_a_cluster(checks, kind):
    """Clusters made, trained and dropped one after the other keep no weights."""
    live = checks["left_behind"]["live"][kind]
    assert max(live[1:]) - min(live[1:]) < checks["left_behind"]["weights"] / 4, live


def test_samples_do_not_depend_on_jax_s_generator(checks):
    """Each row's sample is that of the default generator, in whichever batch it is."""
    whole, half = checks["generators"]["threefry2x32"]
    assert half == whole[8:]
    assert checks["generators"]["rbg"] == [whole, half]


def test_ties_at_the_cut(checks):
    """Of equal logits no more are kept than top-k says, or than the nucleus needs."""
    top_k, nucleus = checks["ties"]
    assert top_k == [4, 4]
    assert nucleus in ([8, 8], [9, 9])


def test_explicit_axes_are_refused(checks):
    """The error says how to make the mesh."""
    assert "type Auto, got {'fsdp': 'Explicit', 'tp': 'Explicit'}" in checks["explicit_axes"]
    assert "jax.make_mesh" in checks["explicit_axes"]


def test_a_program_is_compiled_once(checks):
    """Batches of one shape share prefill and decode; other end tokens get programs of their own."""
    assert checks["programs"]["counts"] == [1, 1]
    for row in checks["programs"]["other_end"]:
        if 2 in row:
            assert not any(row[row.index(2) + 1 :]), row
