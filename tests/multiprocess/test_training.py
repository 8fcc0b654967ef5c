# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Several JAX processes train like one, and every row is scored once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.multiprocess.conftest import Run

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]

SAME = ("tokens", "advantages", "losses", "rewards", "modes", "failed", "params")


@pytest.mark.parametrize("scenario", [0, 1, 2, 3, 5, 6])
def test_two_processes_equal_one(one: Run, two: Run, scenario: int) -> None:
    """Tokens, rewards, advantages, losses, norms and parameters are identical on one mesh shape."""
    for process in (0, 1):
        for name in SAME:
            assert two.of(scenario, process)[name] == one.of(scenario)[name], name


@pytest.mark.parametrize(("number", "scenario"), [(0, 0), (1, 2)])
def test_four_processes_equal_one(one: Run, four: Run, number: int, scenario: int) -> None:
    """The same with one device per process; tensor parallelism crosses processes here."""
    for process in range(4):
        for name in SAME:
            assert four.of(number, process)[name] == one.of(scenario)[name], name


@pytest.mark.slow
@pytest.mark.parametrize(("number", "scenario"), [(0, 1), (1, 3)])
def test_more_of_four_processes(one: Run, more_four: Run, number: int, scenario: int) -> None:
    """Several updates of a batch; a group that lies on all processes."""
    for process in range(4):
        for name in SAME:
            assert more_four.of(number, process)[name] == one.of(scenario)[name], name


@pytest.mark.parametrize("scenario", [4, 5])
def test_mesh_shapes_agree(one: Run, two: Run, scenario: int) -> None:
    """Meshes 4x1 and tp across processes give what mesh 2x2 gives, to 1e-6."""
    want = one.of(0)
    for got in (one.of(scenario), two.of(scenario), two.of(scenario, 1)):
        assert got["tokens"] == want["tokens"]
        np.testing.assert_allclose(got["rewards"], want["rewards"], rtol=1e-6)
        np.testing.assert_allclose(got["advantages"], want["advantages"], atol=1e-6)
        for a, b in zip(got["losses"], want["losses"], strict=True):
            np.testing.assert_allclose(a["norms"], b["norms"], rtol=1e-5)
        np.testing.assert_allclose(got["param_sum"], want["param_sum"], rtol=1e-6)


@pytest.mark.parametrize("scenario", range(7))
def test_every_row_goes_to_one_server(two: Run, scenario: int) -> None:
    """The row ids that the processes sent are all ids of the run, each once."""
    sent = [row for p in (0, 1) for call in two.of(scenario, p)["row_ids"] for row in call]
    rows = sum(len(part) for part in two.of(scenario)["advantages"])
    assert len(sent) == rows
    if "eval" not in two.of(scenario)["modes"]:
        assert len(set(sent)) == rows
        if scenario != 1:  # several iterations a batch: Tunix counts each as a step
            assert sorted(sent) == list(range(rows))


def test_servers_count_what_was_sent(one: Run, two: Run, four: Run) -> None:
    """The servers' own counts add up to the rows of the run, whatever the mesh."""
    for run in (one, two, four):
        sent = [
            sum(len(call) for scenario in process for call in scenario.get("row_ids", []))
            for process in run.results
        ]
        assert run.rows_scored == sent


def test_groups_straddle_processes(two: Run) -> None:
    """One prompt with four generations lies on both processes and gives one group."""
    rows = [two.of(3, process)["row_ids"][0] for process in (0, 1)]
    assert rows == [[0, 1], [2, 3]]
    assert abs(sum(two.of(3)["advantages"][0])) < 1e-5
    assert any(two.of(3)["advantages"][0])


def test_replicas_across_processes_are_scored_by_one(two: Run) -> None:
    """With tp across the processes one of them sends all rows and both get the rewards."""
    assert [len(r) for r in two.of(5, 0)["row_ids"]] == [32] * 5
    assert [len(r) for r in two.of(5, 1)["row_ids"]] == [0] * 5


@pytest.mark.parametrize(("scenario", "calls"), [("runs", [8, 8, 8, 8]), ("torn runs", [16])])
def test_rows_are_sent_as_they_are_sampled(
    one: Run, two: Run, scenario: str, calls: list[int]
) -> None:
    """A rollout micro-batch is a call of its own, unless it tears groups; nothing else changes."""
    for run in (one, two):
        got, want = run.of(scenario), one.of(0)
        steps = len(got["rewards"])
        for name in ("tokens", "advantages", "rewards"):
            assert got[name] == want[name][:steps], name
    for process in (0, 1):
        assert [len(call) for call in two.of(scenario, process)["row_ids"]] == calls


def test_samples_differ_from_step_to_step(one: Run) -> None:
    """The row id is in the sampling key: the same prompts give other samples next time."""
    tokens = one.of(3)["tokens"]
    assert tokens[0] != tokens[1]


def test_local_data_equals_replicated(one: Run, two: Run) -> None:
    """Each process iterating its own prompts is the same run as the global batch."""
    got, want = two.of("local"), one.of(0)
    assert got["tokens"] == want["tokens"][:3]
    assert got["rewards"] == want["rewards"][:3]


def test_same_data_on_both_processes_is_refused(two: Run) -> None:
    """Two processes with the same prompts as "their own" would train on copies."""
    for process in (0, 1):
        error = two.raw("copies", process)["error"]
        assert "same prompts" in error
        assert "data='replicated'" in error


def test_no_collective_moves_tokens(two: Run) -> None:
    """The collectives of the compiled reward step carry [B, 3F + 4] floats and scalars."""
    found = re.findall(
        r"= (\S+) (?:all-gather|all-reduce|all-to-all|collective-permute)[\w-]*\(", two.of(7)["hlo"]
    )
    assert found
    for shape in found:
        for dims in re.findall(r"\[([\d,]*)\]", shape):
            size = int(np.prod([int(d) for d in dims.split(",") if d], dtype=np.int64))
            assert size <= 2 * 64 * 10, shape


@pytest.mark.slow
def test_stock_sampler_fails_where_ours_works(more_two: Run) -> None:
    """Why this project exists: Tunix's sampler raises on sharded prompts or mixes rows up."""
    wrong = 0
    for process in (0, 1):
        result = more_two.of("stock", process)
        assert "addressable" in result["sharded_prompts"]
        assert result["ours"] == result["right_completions"]
        wrong += result["local_prompt_completions"] != result["right_completions"]
    assert wrong


def test_late_process_is_named(two: Run) -> None:
    """The others raise within the bound and say who is missing; later they agree again."""
    missing = r"processes \[1\] did not come to 'a place' within \d+ s \(process 0 waited\)"
    assert re.search(missing, two.of("agreement", 0)["late"])
    assert "process 1 came after others had given up" in two.of("agreement", 1)["late"]
    for process in (0, 1):
        assert two.of("agreement", process)["values"] == [{"process": 0}, {"process": 1}]


def test_processes_at_different_places_are_told_apart(two: Run) -> None:
    """A process that made another call is an error with both places on every process."""
    for process in (0, 1):
        assert "'place 0'" in two.of("agreement", process)["places"]
        assert "'place 1'" in two.of("agreement", process)["places"]


@pytest.mark.parametrize("scenario", ["mask", "value"])
def test_failed_rows_equal_one_process(one: Run, two: Run, scenario: str) -> None:
    """Rows without a reward leave the same mark whatever the number of processes."""
    for process in (0, 1):
        for name in SAME:
            assert two.of(scenario, process)[name] == one.of(scenario)[name], name
    assert all(0 < failed < 16 for failed in one.of(scenario)["failed"])


def test_masked_rows_leave_the_group(two: Run) -> None:
    """A masked row has advantage 0 and the rest of its group is centred without it."""
    advantages = np.array(two.of("mask")["advantages"]).reshape(2, -1, 4)
    np.testing.assert_allclose(advantages.sum(axis=2), 0, atol=1e-5)
    assert ((advantages == 0).sum(axis=2) % 4 != 0).any()


def test_a_value_for_failed_rows_counts(two: Run) -> None:
    """With value=-1 a failed row has the lowest advantage of its group, not 0."""
    masked = np.array(two.of("mask")["advantages"])[0]
    valued = np.array(two.of("value")["advantages"])[0]
    failed = (masked == 0) & (valued < 0)
    groups = valued.reshape(-1, 4)
    lowest = np.repeat(groups.min(axis=1), 4)
    np.testing.assert_allclose(valued[failed], lowest[failed], rtol=1e-6)
    assert failed.any()


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [("abort", "on_failed_row is abort"), ("fraction", "more than max_failed_fraction=0.01")],
)
def test_failed_rows_end_the_run_on_all(one: Run, two: Run, scenario: str, rule: str) -> None:
    """All processes raise the same error in the same step; it names rows, reasons and workers."""
    errors = [two.raw(scenario, process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1] == one.raw(scenario)["error"]
    assert errors[0].startswith("ScoringFailed: rewards of step 0 (train): ")
    assert rule in errors[0]
    assert re.search(r"By reason: ERROR \d+\. By worker: .*row \d+ ERROR in letters", errors[0])


def test_uneven_data_ends_the_run_on_all(two: Run) -> None:
    """The run ends with the first process that has no more batches."""
    assert [two.of("uneven", process)["steps"] for process in (0, 1)] == [[0, 1], [0, 1]]
    assert two.of("uneven", 0)["params"] == two.of("uneven", 1)["params"]


def test_prompts_of_different_length_fit_together(two: Run) -> None:
    """Prompts are padded to the longest of all processes."""
    assert two.of("lengths", 0)["tokens"] == two.of("lengths", 1)["tokens"]


@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        ("sizes", ["train batch 0: process 0 has 4 rows, process 1 has 2"]),
        ("policy", ["the failure policy must be equal", "'mask'", "'abort'"]),
        (
            "tokenizer",
            ["process 1 failed", "tokenizer of the reward server at"],
        ),
    ],
)
def test_disagreement_is_an_error_with_both_values(
    two: Run, scenario: str, parts: list[str]
) -> None:
    """Every process raises the same error at the start or at that step; nothing hangs."""
    errors = [two.raw(scenario, process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1]
    for part in parts:
        assert part in errors[0]
