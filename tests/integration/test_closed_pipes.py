# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of commands whose output nobody reads to the end, as in `reward-server ... | head`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reward_server.flags import EXIT_CLOSED_PIPE, build_parser
from tests.integration import service

ROW = '{"prompt": "p", "completion": "4", "answer": "4"}\n'
# What each command prints: to standard output, or to standard error.
COMMANDS = {
    "rewards": (["rewards"], "stdout"),
    "rewards NAME": (["rewards", "arithmetic"], "stdout"),
    "rewards test": (["rewards", "test", "arithmetic", "--slots", "1"], "stdout"),
    "score": (["score", "ROWS", "--rewards", "TOML", "--out", "OUT"], "stdout"),
    "serve": (["serve", "--tokenizer", "/no/such"], "stderr"),
    "worker": (["worker", "--tokenizer", "/no/such", "--listen", "127.0.0.1:0"], "stderr"),
    "check": (["check", "unix:/no/such", "--timeout-s", "0.1"], "stderr"),
    "--help": (["--help"], "stdout"),
    "serve --help": (["serve", "--help"], "stdout"),
    "--version": (["--version"], "stdout"),
    "usage": (["serve", "--no-such-flag"], "stderr"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_closed_pipe_ends_a_command_without_a_word(tmp_path, name):
    """No traceback and no complaint of Python's; the exit code is a shell's for SIGPIPE."""
    files = {"ROWS": tmp_path / "rows.jsonl", "TOML": tmp_path / "r.toml", "OUT": tmp_path / "out"}
    files["ROWS"].write_text(ROW, encoding="utf-8")
    files["TOML"].write_text('[[reward]]\nfn = "arithmetic"\n', encoding="utf-8")
    words, closed = COMMANDS[name]
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writer}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "reward_server", *(str(files.get(w, w)) for w in words)],
            cwd=service.ROOT,
            text=True,
            timeout=120,
            check=False,
            **streams,
        )
    finally:
        os.close(writer)
    assert done.returncode == EXIT_CLOSED_PIPE
    if closed == "stdout":
        # What it does tells itself there, line by line.
        assert "rror" not in done.stderr
    else:
        assert not done.stdout
    if name == "score":
        # Rows are worth more than their summary.
        assert '"reward": 1.0' in files["OUT"].read_text(encoding="utf-8")


def test_every_command_is_among_them():
    """A new one must end as quietly."""
    (commands,) = (a for a in build_parser()._actions if a.dest == "command")
    assert commands.choices.keys() <= COMMANDS.keys()


def test_both_outputs_may_be_closed(tmp_path):
    """As behind `2>&1 | head`: progress that nobody reads does not end the work."""
    rows, toml, out = tmp_path / "rows.jsonl", tmp_path / "r.toml", tmp_path / "out"
    rows.write_text(ROW, encoding="utf-8")
    toml.write_text('[[reward]]\nfn = "arithmetic"\n', encoding="utf-8")
    command = [sys.executable, "-m", "reward_server", "score", rows, "--rewards", toml]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*map(str, command), "--out", str(out)],
            cwd=service.ROOT,
            stdout=writer,
            stderr=writer,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == EXIT_CLOSED_PIPE
    assert '"reward": 1.0' in out.read_text(encoding="utf-8")
