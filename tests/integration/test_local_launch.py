# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The launcher for one machine: real reward servers, and a script in place of the training."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from deploy.local.launch import fill, parse
from tests.integration import service

SCRIPT = """
import pathlib, signal, sys, time
from tests.integration import service
from trainer import RewardClient

endpoint, coordinator, nodes, node, then = sys.argv[1:]
rewards = RewardClient(endpoint).score(service.local_rollouts(["a", "bb"]))
print(f"node {node} of {nodes}: {rewards.valid.sum()} rows; {coordinator}")
if then == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(600)
if then == "save":
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    print("training", flush=True)
    while not stop:
        time.sleep(0.02)
    time.sleep(2)  # samples the step under way, which needs rewards
    rewards = RewardClient(endpoint, timeout_s=5).score(service.local_rollouts(["a", "bb"]))
    pathlib.Path(__file__).with_name(f"checkpoint{node}").write_text(str(rewards.valid.sum()))
    sys.exit(143)
if then == "wait" or (then == "fail" and node == "0"):
    time.sleep(600)
sys.exit(7 if then == "fail" else 0)
"""
PLACES = ("{endpoint}", "{coordinator}", "{nodes}", "{node}")


@pytest.fixture
def files():
    """A tokenizer, functions, the script; TMPDIR is in the same folder, with a short path."""
    with tempfile.TemporaryDirectory() as name:
        folder = service.write_files(Path(name))
        (folder / "train.py").write_text(SCRIPT)
        (folder / "tmp").mkdir()
        yield folder


def start(files, then, *flags, **options):
    """Starts the launcher for two nodes."""
    path = os.pathsep.join([str(service.ROOT), str(service.ROOT / "protos")])
    env = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(files / "tmp"), "NO_COLOR": ""}
    command = [
        *(sys.executable, "-m", "deploy.local.launch", *flags),
        *("--tokenizer", str(files), "--rewards", str(files / "rewards.toml")),
        *("--", sys.executable, str(files / "train.py"), *PLACES, then),
    ]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    return subprocess.Popen(command, cwd=service.ROOT, env=env, **options)


def lines_of(launcher):
    """Output up to the end, and the exit code."""
    out, _ = launcher.communicate(timeout=120)
    return out.decode().splitlines(), launcher.returncode


def nothing_left(files):
    """Whether no process of this launch and no socket of it is there any more."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(files) in part for part in process.info["cmdline"] or ())
        ]
        if not left:
            return not list((files / "tmp").glob("shardward-*"))
        time.sleep(0.1)
    return False


def test_each_node_has_its_server(files):
    """Every process gets its server and the same coordinator; each line says whose it is."""
    lines, code = lines_of(start(files, "end", "--workers", "1"))
    assert code == 0, lines
    found = [
        re.fullmatch(r"\[node(\d) trainer\] node (\d) of 2: 2 rows; (127.0.0.1:\d+)", line)
        for line in lines
    ]
    rows = sorted(match.groups() for match in found if match)
    assert [row[:2] for row in rows] == [("0", "0"), ("1", "1")]
    assert rows[0][2] == rows[1][2]
    assert {"[node0 server]", "[node1 worker]"} <= {" ".join(x.split()[:2]) for x in lines}
    assert nothing_left(files)


def test_first_failure_is_the_exit_code(files):
    """A process that fails ends all others, and the launcher with its code."""
    lines, code = lines_of(start(files, "fail"))
    assert code == 7, lines
    assert "launch: node1 trainer ended with exit code 7." in lines
    assert nothing_left(files)


def test_one_ctrl_c_ends_all(files):
    """On a terminal: coloured names, and Ctrl-C leaves nothing behind."""
    ours, theirs = pty.openpty()
    launcher = start(files, "wait", "--nodes", "1", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while b"rows" not in out:
            out += os.read(ours, 4096)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(60) == 128 + signal.SIGINT
    finally:
        launcher.kill()
        os.close(ours)
    assert re.search(rb"\x1b\[\d+m\[node0 trainer\]\x1b\[0m node 0 of 1", out)
    assert nothing_left(files)


def test_servers_live_until_the_trainers_have_ended(files):
    """A training that is stopped gets the rewards of its last step, and saves its checkpoint."""
    launcher = start(files, "save", "--workers", "1")
    out = b""
    while out.count(b"] training") < 2:
        line = launcher.stdout.readline()
        assert line, out
        out += line
    launcher.send_signal(signal.SIGINT)
    lines, code = lines_of(launcher)
    assert code == 128 + signal.SIGINT, lines
    assert [(files / f"checkpoint{node}").read_text() for node in (0, 1)] == ["2", "2"]
    assert "stopping: node0 trainer, node1 trainer (at most 60 s; Ctrl-C again kills)" in lines
    assert nothing_left(files)


def test_a_command_that_does_not_end_is_killed(files):
    """After its grace; then the servers stop, too."""
    launcher = start(files, "deaf", "--nodes", "1", "--grace", "1")
    while b"deaf" not in launcher.stdout.readline():
        pass
    launcher.send_signal(signal.SIGTERM)
    lines, code = lines_of(launcher)
    assert code == 128 + signal.SIGTERM
    assert "stopping: node0 trainer (at most 1 s; Ctrl-C again kills)" in lines
    assert any("[node0 server]" in line and "stopped rows_scored=2" in line for line in lines)
    assert nothing_left(files)


def test_fill():
    """Only the four places are filled; a script may use braces of its own."""
    values = dict.fromkeys(("endpoint", "coordinator", "nodes", "node"), "x")
    assert fill(["{endpoint}", "a{node}b", "{rank}", "{}"], values) == ["x", "axb", "{rank}", "{}"]


@pytest.mark.parametrize(
    ("flags", "command", "message"),
    [
        ([], [], "a command must follow --"),
        ([], ["python", "grpo.py"], "the command must have {endpoint}"),
        ([], ["python", "grpo.py", "{endpoint}"], "the command must have {node}"),
        (["--nodes", "0"], PLACES, "--nodes must be >= 1, got 0"),
        (["--timeout", "0"], PLACES, "--timeout must be > 0 seconds"),
        (["--grace", "-1"], PLACES, "--grace must be >= 0 seconds"),
        (["--rewards", "nowhere.toml"], PLACES, "--rewards must exist, got nowhere.toml"),
    ],
)
def test_wrong_usage(files, capsys, flags, command, message):
    """Code 2 with the flag, the rule and the value."""
    given = ["--tokenizer", str(files), "--rewards", str(files / "rewards.toml")]
    with pytest.raises(SystemExit) as error:
        parse([*given, *flags, "--", *command])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
