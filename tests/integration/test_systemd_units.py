# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The systemd units: systemd accepts them, and their commands run together."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from reward_server.cli import build_parser
from tests.integration import service
from trainer import RewardClient

UNITS = service.ROOT / "deploy" / "local" / "systemd"
NAMES = ("reward-worker", "reward-server")


def unit_of(name):
    """A unit file by sections."""
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str
    parsed.read(UNITS / f"{name}.service")
    return parsed


def words_of(name, runtime, environment):
    """ExecStart as systemd would run it."""
    text = unit_of(name)["Service"]["ExecStart"].replace("%t", str(runtime))
    return [re.sub(r"\$\{(\w+)\}", lambda x: environment[x[1]], word) for word in text.split()]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    """No unknown key, no wrong value."""
    for name in NAMES:
        shutil.copy(UNITS / f"{name}.service", tmp_path)
    files = [str(tmp_path / f"{name}.service") for name in NAMES]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", *files],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_every_variable_is_in_the_file():
    """The file to edit has what the units want, and nothing else."""
    lines = (UNITS / "reward.env").read_text().splitlines()
    given = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    used = {
        name
        for unit in NAMES
        for name in re.findall(r"\$\{(\w+)\}", unit_of(unit)["Service"]["ExecStart"])
    }
    assert given == used


@pytest.mark.parametrize("name", NAMES)
def test_it_may_drain(name, tmp_path):
    """Systemd waits longer than the drain before it kills."""
    unit = unit_of(name)["Service"]
    environment = {"SHARDWARD_BIN": "b", "TOKENIZER": "t", "REWARDS": "r", "SLOTS": "2"}
    command = words_of(name, tmp_path, environment)
    assert command[:2] == ["/usr/bin/env", "b/reward-server"]
    flags = build_parser().parse_args(command[2:])
    assert flags.drain_s + 10 <= int(unit["TimeoutStopSec"])


def test_the_pair_scores_rows(tmp_path):
    """The commands of both units, as they are: the server waits for the worker; both drain."""
    files = service.write_files(tmp_path / "files")
    environment = {
        "SHARDWARD_BIN": os.path.dirname(sys.executable),  # noqa: PTH120 - not resolved
        "TOKENIZER": str(files),
        "REWARDS": str(files / "rewards.toml"),
        "SLOTS": "1",
    }
    path = os.pathsep.join([str(service.ROOT), str(service.ROOT / "protos")])
    started = []
    try:
        for name in reversed(NAMES):
            (tmp_path / name).mkdir()
            started.append(
                subprocess.Popen(
                    words_of(name, tmp_path, environment), env={**os.environ, "PYTHONPATH": path}
                )
            )
        address = f"unix:{tmp_path}/reward-server/reward.sock"
        check = [f"{environment['SHARDWARD_BIN']}/reward-server", "check", address]
        deadline = time.monotonic() + 100
        while subprocess.run(check, capture_output=True, timeout=60, check=False).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        rewards = RewardClient(address).score(service.local_rollouts(["a", "bb"]))
        assert rewards.valid.all()
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
