# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The training program as a scheduler uses it: SIGTERM, then the same command again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.multiprocess.conftest import info
from trainer import recipes

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


def test_sigterm_stops_with_a_checkpoint_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """Exit code 143, a message that says how to go on, and then the rest of the steps."""
    recipe, endpoint = recipes.load("tiny"), f"unix:{tmp_path}/s"
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    files = ["--tokenizer", str(recipe.tokenizer_dir), "--rewards", str(recipe.rewards_file)]
    serve = ["reward_server", "serve", "--listen", endpoint, "--slots", "1", *files]
    train = [
        *("trainer.cli", "--reward-endpoint", endpoint, "--recipe", "tiny"),
        *("--out", str(tmp_path / "out"), "--checkpoint-dir", str(tmp_path / "checkpoints")),
    ]

    def start(command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (tmp_path / log).open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *command], stdout=out, stderr=out, env=environment
            )

    started = [start(serve, "server.log")]
    try:
        info(endpoint)
        started.append(start([*train, "--steps", "5000"], "first.log"))
        metrics = tmp_path / "out" / "metrics.jsonl"
        deadline = time.monotonic() + 240
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            assert started[-1].poll() is None, (tmp_path / "first.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        started[-1].send_signal(signal.SIGTERM)
        assert started[-1].wait(120) == 128 + signal.SIGTERM
        text = (tmp_path / "first.log").read_text()
        found = re.search(r"stopped by SIGTERM after step (\d+); the same command goes on", text)
        assert found, text
        done = int(found[1])
        started.append(start([*train, "--steps", str(done + 3)], "second.log"))
        assert started[-1].wait(240) == 0, (tmp_path / "second.log").read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert f"resumed after step {done} from" in (tmp_path / "second.log").read_text()
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps[-3:] == [done, done + 1, done + 2]
    assert len(steps) == len(set(steps))
