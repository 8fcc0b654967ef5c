# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a dataset holds reaches the reward functions, in several processes as in one."""

from __future__ import annotations

import itertools

import pytest

from tests.multiprocess.conftest import LOCAL, MICRO, Run, launch

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1500)]

SAME = ("tokens", "advantages", "losses", "rewards", "failed", "widths", "params")
VALUES = {"values": True, "steps": 2}
BEYOND = {"run": "train", "vocab": 34, "steps": 3}
EVERYWHERE = [
    {"run": "train", **VALUES, "name": "values"},
    {**MICRO, **VALUES, "name": "values micro"},
    {**MICRO, **VALUES, "name": "values gathered", "path": "allgather"},
    {**BEYOND, "name": "beyond"},
    {**BEYOND, "name": "beyond, gathered", "path": "allgather"},
    {**BEYOND, "name": "beyond, called back", "path": "callback"},
    {"run": "train", "name": "last", "sizes": [4, 4, 2, 4, 1], "generations": 3, "eval_every": 2},
    {**MICRO, "name": "last micro", "sizes": [8, 8, 3]},
    {"run": "train", "name": "long", "batch": 4, "long": [0, 9], "steps": 4},
    {"run": "train", "name": "dropped", "batch": 4, "long": [0, 9], "steps": 4, "drop": True},
]
NAMES = [str(scenario["name"]) for scenario in EVERYWHERE]
LOCAL_DATA = [
    {**LOCAL, "name": "surrogate", "bad_prompt": ["surrogate", None]},
    {**LOCAL, "name": "ragged ends", "last_less": [0, 1]},
]
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def data_one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process with four devices."""
    return launch(tmp_path_factory.mktemp("data-1"), 1, EVERYWHERE, 600)


@pytest.fixture(scope="module")
def data_two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with two devices each."""
    return launch(tmp_path_factory.mktemp("data-2"), 2, [*EVERYWHERE, *LOCAL_DATA], 900)


def flat(values):
    """Joins the rows of micro-batches."""
    return list(itertools.chain(*values))


def has_no_token(result):
    """Whether an id that the tokenizer does not have was sampled."""
    return any(token == 32 for rows in result["tokens"] for row in rows for token in row)


def test_values_of_all_kinds_arrive(one: Run) -> None:
    """In micro-batches, real reward functions get them as the dataset has them."""
    assert set(one.of("values micro")["failed"]) == {0}


def test_values_of_local_data_arrive(two: Run) -> None:
    """The same where each process iterates its own."""
    assert set(two.of("values local")["failed"]) == {0}


def test_ids_beyond_the_tokenizer_are_scored(one: Run) -> None:
    """A padded embedding row that is sampled neither ends the run nor takes a reward away."""
    result = one.of("beyond")
    assert has_no_token(result)
    assert set(result["failed"]) == {0}
    assert "the model has more token ids than the tokenizer model=34 tokenizer=32" in one.logs[0]


@slow
def test_ids_beyond_the_tokenizer_with_tp_across_processes(more_two: Run) -> None:
    """The same where one process scores for two."""
    assert has_no_token(more_two.of("beyond"))
    assert set(more_two.of("beyond")["failed"]) == {0}


def test_equal_prompts_in_one_step_are_chance(two: Run) -> None:
    """A run goes on, with a warning."""
    assert two.of("chance")["steps"] == [0, 1, 2]
    assert "train batch 1: processes 0 and 1 have the same prompts" in two.logs[0]


def test_bad_prompts_of_one_process_end_the_run_on_all(two: Run) -> None:
    """With the same error, which names process, column, row and remedy."""
    for rank in (0, 1):
        error = two.raw("bytes", rank)["error"]
        assert "process 1 failed at 'train batch 1'" in error
        assert "column 'prompts' must hold text, got bytes in row 0. Decode it" in error


@slow
@pytest.mark.parametrize("scenario", NAMES)
def test_two_processes_equal_one(data_one: Run, data_two: Run, scenario: str) -> None:
    """Whatever the dataset holds."""
    for process in (0, 1):
        for name in SAME:
            assert data_two.of(scenario, process)[name] == data_one.of(scenario)[name], name


@slow
@pytest.mark.parametrize("scenario", [name for name in NAMES if "values" in name])
def test_values_arrive_by_every_path(data_one: Run, data_two: Run, scenario: str) -> None:
    """Whole or in micro-batches, from a server or in the process."""
    for run in (data_one, data_two):
        assert set(run.of(scenario)["failed"]) == {0}


@slow
def test_samples_do_not_depend_on_micro_batches(data_one: Run) -> None:
    """A prompt's number in the run is in its keys, and the micro-batch is not."""
    whole, micro = data_one.of("values"), data_one.of("values micro")
    assert flat(micro["tokens"]) == flat(whole["tokens"])
    assert data_one.of("values gathered")["rewards"] == micro["rewards"]


@slow
@pytest.mark.parametrize("scenario", [name for name in NAMES if "beyond" in name])
def test_ids_beyond_the_tokenizer_by_every_path(
    data_one: Run, data_two: Run, scenario: str
) -> None:
    """The text, and so the reward, is the same by each."""
    for run in (data_one, data_two):
        result = run.of(scenario)
        assert has_no_token(result)
        assert set(result["failed"]) == {0}
        assert result["rewards"] == data_one.of("beyond")["rewards"]


@slow
def test_a_last_batch_that_the_shards_do_not_divide(data_one: Run, data_two: Run) -> None:
    """It is left out with a warning; row ids stay unique behind a smaller batch."""
    evaluated = set(range(12))
    sent = [row for call in data_one.of("last")["row_ids"] for row in call]
    assert sorted(row for row in sent if row not in evaluated) == list(range(12, 42))
    for log in (data_one.logs[0], *data_two.logs):
        assert "train batch 4: prompts are left out" in log
        assert "left_out=1 of=1" in log


@slow
def test_prompts_that_make_no_whole_update_are_left_out(data_one: Run) -> None:
    """Tunix trains on whole updates alone; how many prompts were left out is said."""
    assert sorted(set(data_one.of("last micro")["steps"])) == [0, 1]
    assert "make no whole update and are left out prompts=3" in data_one.logs[0]


@slow
def test_a_long_prompt_widens_its_batch_alone(data_one: Run) -> None:
    """Batches 0 and 2 have one of 12 tokens, the others none."""
    assert data_one.of("long")["widths"] == [16, 8, 16, 8]
    warning = "prompts are longer than max_prompt_length=8: their batch is padded to 16"
    assert data_one.logs[0].count(warning) == 1


@slow
def test_long_prompts_can_be_dropped(data_one: Run) -> None:
    """Their places are filled, so that all batches have one size; the last one is smaller."""
    assert data_one.of("dropped")["widths"] == [8, 8, 8, 8]
    assert [len(rows) for rows in data_one.of("dropped")["tokens"]] == [16, 16, 16, 8]
    assert "long prompts are left out so_far=2 tokens_above=8" in data_one.logs[0]


@slow
def test_text_that_cannot_travel_ends_the_run_on_all(data_two: Run) -> None:
    """Half of a character in the prompts of one process."""
    for rank in (0, 1):
        error = data_two.raw("surrogate", rank)["error"]
        assert "process 0 failed at 'train batch 1'" in error
        assert "column 'prompts' must hold text, got text with a lone surrogate" in error


@slow
def test_last_batches_of_different_size_end_the_data(data_two: Run) -> None:
    """Datasets of unequal length are no error after the last whole batch."""
    for process in (0, 1):
        assert data_two.of("ragged ends", process)["steps"] == [0, 1]
