# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of what becomes of rows without a reward."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from trainer import failures
from trainer.codec import RowFailure, RowRewards
from trainer.errors import ScoringFailed
from trainer.failures import FailedRows, FailurePolicy


def rewards(first_row, valid, worker=""):
    """Rewards of rows from first_row on, with a failure for each that is not valid."""
    valid = np.array(valid, np.bool_)
    return RowRewards(
        reward_fns=("f",),
        rewards=np.where(valid, 1.0, np.nan)[:, None].astype(np.float32),
        totals=np.where(valid, 1.0, np.nan).astype(np.float32),
        valid=valid,
        failures=[
            RowFailure(first_row + int(i), "TIMEOUT", "f", "ran longer than 1 s", worker)
            for i in np.flatnonzero(~valid)
        ],
        extra_columns={},
        queue_s=0.0,
        total_s=0.0,
    )


def summaries(*parts):
    """Summaries as the other processes get them."""
    return [json.loads(json.dumps(failures.summarize(part))) for part in parts]


@pytest.mark.parametrize("text", ["", "skip", "value=", "value=nan", "value=inf", "value=x", "0"])
def test_unknown_rules_are_refused(text):
    """A rule is mask, abort or value=NUMBER."""
    with pytest.raises(ValueError, match="`on_failed_row` must be mask, abort or value=NUMBER"):
        FailurePolicy(on_failed_row=text)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_fraction_is_a_share(fraction):
    """The share is in [0, 1]."""
    with pytest.raises(ValueError, match=r"`max_failed_fraction` must be in \[0, 1\]"):
        FailurePolicy(max_failed_fraction=fraction)


def test_value_of_a_failed_row():
    """Only value=X gives a failed row a total."""
    assert FailurePolicy(on_failed_row="value=-0.5").value == -0.5
    assert FailurePolicy().value is None
    assert FailurePolicy(on_failed_row="abort").value is None


def merged(*parts):
    """One summary of parts of rows, one a process, as it travels."""
    return json.loads(json.dumps(failures.merge(summaries(*parts))))


def judge(rows, *calls, **policy):
    """Judges a step of so many rows, whose sampling calls have these summaries."""
    failed = FailedRows(FailurePolicy(**policy))
    failed.start(rows)
    for call in calls:
        failed.add("rewards of step 3 (train)", call)
    failed.finish()


def test_few_failures_go_on():
    """Up to the share, and without failures, nothing is raised."""
    judge(4, merged(rewards(0, [True, True, True, False]), None))
    judge(1, merged(rewards(0, [True])), on_failed_row="abort", max_failed_fraction=0)


def test_too_many_failures_end_the_run():
    """The message has counts by reason and by worker over all processes, and the first rows."""
    parts = merged(
        rewards(0, [True, True, False, True]), rewards(4, [False, True, True, False], "w:1"), None
    )
    with pytest.raises(ScoringFailed) as caught:
        judge(8, parts)
    assert caught.value.reason == "ROWS_FAILED"
    text = str(caught.value)
    assert "step 3 (train): 3 of 8 rows have no reward, more than max_failed_fraction=0.25" in text
    assert "By reason: TIMEOUT 3." in text
    assert "By worker: w:1 2, the servers' own processes 1." in text
    assert "row 2 TIMEOUT in f: ran longer than 1 s; row 4" in text


def test_abort_ends_at_the_first_failure():
    """One failed row is enough; the row is named."""
    for rows in (8, None):
        failed = FailedRows(FailurePolicy(on_failed_row="abort"))
        failed.start(rows)
        with pytest.raises(ScoringFailed, match=r"on_failed_row is abort.*row 1 TIMEOUT"):
            failed.add("s", merged(rewards(0, [True, False])))


@pytest.mark.parametrize("rows", [16, None])
@pytest.mark.parametrize("failing_rows", range(7))
def test_the_share_is_one_of_the_step(rows, failing_rows):
    """The same rows give the same decision, whichever way the step is cut into sampling calls."""
    valid = [True] * 6 + [False] * failing_rows + [True] * (10 - failing_rows)
    for size in (1, 2, 4, 8, 16):
        calls = [merged(rewards(i, valid[i : i + size])) for i in range(0, 16, size)]
        if failing_rows > 4:
            with pytest.raises(ScoringFailed, match="of 16 rows"):
                judge(rows, *calls)
        else:
            judge(rows, *calls)


def test_a_run_ends_as_soon_as_it_must():
    """No more rows are sampled once the step can't be saved; before, they are."""
    failed = FailedRows(FailurePolicy())
    failed.start(16)
    failed.add("s", merged(rewards(0, [False] * 4)))
    with pytest.raises(ScoringFailed, match="5 of 16 rows"):
        failed.add("s", merged(rewards(4, [False, True])))


def test_a_step_that_was_shorter_is_judged_by_its_rows():
    """The last batch of the data may be smaller than the others; each step begins anew."""
    failed = FailedRows(FailurePolicy())
    for _ in range(2):
        failed.start(16)
        failed.add("s", merged(rewards(0, [False, True, True, True])))
        failed.finish()
    failed.start(16)
    failed.add("s", merged(rewards(0, [False, False, True, True])))
    with pytest.raises(ScoringFailed, match="2 of 4 rows"):
        failed.finish()


def test_reasons_are_added_up():
    """Counts of all processes, by status."""
    found = merged(rewards(0, [False]), rewards(1, [False, True]))
    assert found["reasons"] == {"TIMEOUT": 2}
    assert (found["rows"], found["failed"]) == (3, 2)


SECRET = "the model's own words (line 7 of its answer)\nand more"


def failing(*failed):
    """Rewards of four rows, of which some failed: (row, status, message, worker)."""
    rows = [row for row, *_ in failed]
    none = rewards(0, [i not in rows for i in range(4)])
    found = [
        RowFailure(row, status, "f", message, worker) for row, status, message, worker in failed
    ]
    return dataclasses.replace(none, failures=found)


def test_causes_are_grouped_over_processes():
    """Rows that failed in the same place count together, wherever they were; most rows first."""
    raised = "ValueError: could not convert 'x' (line 5 of rw.py)"
    first = failing((0, "ERROR", raised, "a:1"), (1, "TIMEOUT", "ran longer than 2 s", "a:1"))
    second = failing(
        (0, "ERROR", "ValueError: another text (line 5 of rw.py)", "a:1"),
        (1, "ERROR", "ValueError (line 6 of rw.py)", "a:1"),
        (2, "OOM", "its process used 4294967297 bytes of memory", ""),
        (3, "OOM", "its process used 4294967298 bytes of memory", ""),
    )
    found = failures.causes(summaries(first, None, second))
    assert [(rows, *cause) for cause, rows in found] == [
        (2, "ERROR", "f", "ValueError (line 5 of rw.py)", "a:1"),
        (2, "OOM", "f", "its process used N bytes of memory", "-"),
        (1, "ERROR", "f", "ValueError (line 6 of rw.py)", "a:1"),
        (1, "TIMEOUT", "f", "ran longer than 2 s", "a:1"),
    ]


@pytest.mark.parametrize("status", ["ERROR", "OOM"])
@pytest.mark.parametrize(
    "message",
    [
        f"MemoryError: {SECRET}",
        f"ValueError: {SECRET}",
        f"KeyError: {SECRET} (line 3 of rw.py)",
        f"ValueError: {SECRET} (line 5 of {SECRET})",
        f"KeyError: {SECRET}: {SECRET}",
    ],
)
def test_a_cause_holds_no_text_of_the_model(message, status):
    """What an exception says may quote its row; its type and its line can't."""
    ((cause, _),) = failures.causes(summaries(failing((0, status, message, ""))))
    assert cause.what.partition(" ")[0] == message.partition(":")[0]
    assert "model" not in cause.what
    assert "\n" not in cause.what
    assert "answer" not in cause.what


def test_an_error_without_a_type_says_nothing():
    """A worker of another version may write otherwise."""
    assert failures.Cause.of(RowFailure(0, "ERROR", "f", SECRET)).what == "-"


def test_causes_are_bounded():
    """However many there are, a process tells of a few."""
    many = [(row, "TIMEOUT", f"ran longer than {row} s", "") for row in range(1000)]
    summary = failures.summarize(failing(*many))
    assert len(json.dumps(summary["causes"])) < 2000
