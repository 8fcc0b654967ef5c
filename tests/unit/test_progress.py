# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The files that a run writes about itself: strict JSON, and no error of a disk ends the run."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import resource
import sys

import pytest

from trainer.json_lines import JsonLines, write_json
from trainer.progress import Progress
from trainer.reporting import StepReport

NAN = float("nan")


def strict_lines(file):
    """Lines of a file, read by a parser that takes nothing but JSON."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def report(step, **changes):
    """What a step earned."""
    values = {
        "step": step,
        "mode": "train",
        "rows": 4,
        "rows_failed": 1,
        "reward_mean": 0.5,
        "per_function": {"f": 0.5},
        "completion_length_mean": 3.0,
        "reward_wait_s": 0.25,
        "samples": [("1+1=", "2", 1.0)],
    }
    return StepReport(**(values | changes))


def progress(folder, **settings):
    """A run of ten steps that shows nothing."""
    return Progress(**({"steps": 10, "folder": folder, "show": False} | settings))


def run(folder, steps, **settings):
    """Reports steps and their losses; returns the totals."""
    with progress(folder, **settings) as seen:
        for step in steps:
            seen.on_step(report(step))
            seen.on_loss(0.1)
    return seen


@contextlib.contextmanager
def full_disk(limit):
    """A file can't become longer than so many bytes, as on a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_metrics_are_json_also_without_a_reward(tmp_path):
    """A sample, a function or a step without a reward, and a loss that is no number, are null."""
    with progress(tmp_path) as seen:
        seen.on_step(report(0, samples=[("0+3=", "3<end>", NAN)]))
        seen.on_loss(float("inf"))
        seen.on_step(report(1, reward_mean=NAN, per_function={"f": NAN}, rows_failed=4))
    first, second = strict_lines(tmp_path / "metrics.jsonl")
    assert first["samples"] == [["0+3=", "3<end>", None]]
    assert first["loss"] is None
    assert (second["reward_mean"], second["per_function"]) == (None, {"f": None})
    assert seen.reward_first == 0.5
    write_json(tmp_path / "train.json", {"reward_first": NAN, "rows": 3})
    assert json.loads((tmp_path / "train.json").read_text()) == {"reward_first": None, "rows": 3}


def test_a_run_that_goes_on_keeps_the_lines_of_its_checkpoint(tmp_path):
    """Steps after the checkpoint are made again; a line that was cut off is no error."""
    run(tmp_path, range(4))
    with (tmp_path / "metrics.jsonl").open("a") as out:
        out.write('{"step": 4, "rew')
    seen = run(tmp_path, range(3, 5), done=3)
    assert [line["step"] for line in strict_lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert (seen.rows, seen.rows_failed, seen.reward_wait_s) == (20, 5, 1.25)


@pytest.mark.parametrize(
    "text", ['{"step": 0, "rewa\n', "[1]\n", '{"step": 0}\n', '{"step": "x"}\n', b"\xff\xfe\n"]
)
def test_a_metrics_file_that_can_not_be_read_is_replaced(tmp_path, caplog, text):
    """A broken file of a run before costs its lines, with a warning that names it; no more."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    run(tmp_path, range(2, 4), done=2)
    assert [line["step"] for line in strict_lines(file)] == [2, 3]
    messages = [record.getMessage() for record in caplog.records]
    assert "metrics of steps before are missing lines=0 steps=2: totals are of the rest" in messages


def test_the_line_shown_counts_steps_of_the_whole_run(tmp_path, capsys):
    """Also where the metrics of the steps before are in another folder."""
    with progress(tmp_path, show=True, done=8) as seen:
        seen.on_step(report(8))
        seen.on_step(report(9))
    assert "step 10/10 " in capsys.readouterr().err


def test_log_lines_stand_above_the_bar(tmp_path, capsys, monkeypatch):
    """On a terminal the bar is taken away for a line of the log, and drawn again below it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    handler = logging.StreamHandler(sys.stderr)
    logging.root.addHandler(handler)
    try:
        with progress(tmp_path, show=True) as seen:
            seen.on_step(report(0))
            logging.getLogger("trainer").warning("rows failed")
    finally:
        logging.root.removeHandler(handler)
    assert re.search(r"step/s.*\r *\rrows failed\n", capsys.readouterr().err)


def test_a_full_disk_does_not_end_a_run(tmp_path, caplog):
    """No exception; whole lines only; one warning with the file; on again when there is room."""
    file = tmp_path / "metrics.jsonl"
    with progress(tmp_path) as seen:
        seen.on_step(report(0))
        seen.on_loss(0.1)
        with full_disk(file.stat().st_size + 50):
            for step in range(1, 4):
                seen.on_step(report(step))
                seen.on_loss(0.1)
            write_json(tmp_path / "train.json", {"text": "x" * 1000})
        seen.on_step(report(4))
        seen.on_loss(0.1)
    assert [line["step"] for line in strict_lines(file)] == [0, 4]
    first, summary, again = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"lines are not written file={file}: ")
    assert summary.startswith(f"not written file={tmp_path / 'train.json'}: ")
    assert again == f"lines are written again file={file} lost=3"


def test_a_full_disk_at_the_start_keeps_what_is_there(tmp_path, caplog):
    """The old lines are not given up before the new file is whole."""
    run(tmp_path, range(3))
    before = (tmp_path / "metrics.jsonl").read_text()
    with full_disk(10):
        run(tmp_path, range(3, 5), done=3)
    assert (tmp_path / "metrics.jsonl").read_text() == before
    assert len([r for r in caplog.records if "metrics.jsonl" in r.getMessage()]) == 2


def test_a_folder_that_is_gone_does_not_end_a_run(tmp_path, caplog):
    """Nor does a folder in the place of the file."""
    (tmp_path / "metrics.jsonl").mkdir()
    run(tmp_path, range(2))
    run(tmp_path / "gone", range(2))
    files = {str(tmp_path / "metrics.jsonl"), str(tmp_path / "gone" / "metrics.jsonl")}
    warned = [r.getMessage() for r in caplog.records if "lines are not written" in r.getMessage()]
    assert {message.partition("file=")[2].partition(": ")[0] for message in warned} == files


def test_lines_are_written_whole_or_not_at_all(tmp_path):
    """A value without JSON form takes the lines of its call with it, and no others."""
    lines = JsonLines(tmp_path / "x.jsonl")
    lines.write([{"a": 1}])
    lines.write([{"a": 2}, {"a": {3}}])
    lines.write([{"a": 4}])
    assert strict_lines(tmp_path / "x.jsonl") == [{"a": 1}, {"a": 4}]
