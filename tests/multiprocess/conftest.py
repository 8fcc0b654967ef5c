# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Launches real JAX processes and a real reward server for each of them."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from shardward.v1 import reward_pb2, reward_pb2_grpc

ROOT = Path(__file__).parents[2]

REWARDS = """
[[reward]]
fn = "rewards.py:letters"
weight = 1.0

[[reward]]
fn = "rewards.py:length"
weight = 0.5
"""

REWARD_FNS = '''
import hashlib
import time

def letters(prompts, completions, answer, pause_s=(), value=(), want=(), **_):
    """Depends on every character of the row, so that a mixed-up row shows.

    Some rows whose answer begins with "!" get none, and all where it begins with "!!". A value that
    is not what is wanted, with the types of all that is in it, gives none either.
    """
    time.sleep(sum(pause_s))
    if [repr(item) for item in value] != list(want):
        raise ValueError(f"got {value}, not {want}")
    out = []
    for prompt, completion, gold in zip(prompts, completions, answer):
        digest = hashlib.sha256(f"{prompt}|{completion}|{gold}".encode()).hexdigest()
        if gold.startswith("!!") or (gold.startswith("!") and digest[-1] in "01234"):
            raise ValueError("no reward for this one")
        out.append(int(digest[:4], 16) / 65536)
    return out

def letter(prompts, completions, answer, **_):
    """The same in whole numbers."""
    return [float(int(16 * value)) for value in letters(prompts, completions, answer)]

def length(prompts, completions, **_):
    return [float(len(c)) for c in completions]
'''


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_command(*command: str | Path, timeout_s: float, **environment: str) -> str:
    """Runs a command that must end well, with this checkout's packages; gives what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    return text


@dataclasses.dataclass
class Run:
    """What the processes of a run wrote and what their servers counted."""

    results: list[list[dict[str, Any]]]
    rows_scored: list[int]
    logs: list[str]
    exit_codes: list[int]
    names: list[str | None]

    def raw(self, scenario: int | str, process: int = 0) -> dict[str, Any]:
        """Result of a scenario, by number or name, on a process."""
        number = self.names.index(scenario) if isinstance(scenario, str) else scenario
        return self.results[process][number]

    def of(self, scenario: int | str, process: int = 0) -> dict[str, Any]:
        """The same; fails the test if the scenario raised."""
        result = self.raw(scenario, process)
        assert "error" not in result, result.get("trace", result["error"])
        return result


def launch(
    folder: Path,
    processes: int,
    scenarios: list[dict[str, Any]],
    timeout_s: float,
    rewards: str = REWARDS,
) -> Run:
    """Runs scenarios in JAX processes with 4 devices in all; ends everything it started."""
    from tests.multiprocess.scenarios import char_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    char_tokenizer().save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "rewards.toml").write_text(rewards)
    (folder / "rewards.py").write_text(REWARD_FNS)
    endpoints = [f"unix:{folder}/s{i}" for i in range(processes)]
    plan = {
        "devices": 4 // processes,
        "coordinator": f"127.0.0.1:{free_port()}",
        "endpoints": endpoints,
        "out": str(folder),
        "scenarios": scenarios,
    }
    started: list[subprocess.Popen[bytes]] = []
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    env = {**os.environ, "PYTHONPATH": path}

    def start(log: str, *args: str) -> subprocess.Popen[bytes]:
        with (folder / log).open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *args], cwd=ROOT, env=env, stdout=out, stderr=out
            )
        started.append(process)
        return process

    try:
        for i, endpoint in enumerate(endpoints):
            start(
                f"server-{i}.log",
                *("reward_server", "serve", "--listen", endpoint, "--slots", "1"),
                *("--tokenizer", str(folder), "--rewards", str(folder / "rewards.toml")),
            )
        for i, endpoint in enumerate(endpoints):
            try:
                info(endpoint)
            except grpc.RpcError:
                pytest.fail((folder / f"server-{i}.log").read_text())
        plan["servers"] = [process.pid for process in started]
        (folder / "plan.json").write_text(json.dumps(plan))
        trainers = [
            start(
                f"train-{i}.log",
                "tests.multiprocess.train_worker",
                str(folder / "plan.json"),
                *(str(i), str(processes)),
            )
            for i in range(processes)
        ]
        deadline = time.monotonic() + timeout_s
        codes = [t.wait(max(1.0, deadline - time.monotonic())) for t in trainers]
        alive = [process.poll() is None for process in started[: len(endpoints)]]
        scored = [
            info(endpoint).rows_scored if up else -1
            for endpoint, up in zip(endpoints, alive, strict=True)
        ]
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    files = [folder / f"result-{i}.json" for i in range(processes)]
    results = [json.loads(file.read_text()) if file.exists() else [] for file in files]
    logs = [(folder / f"train-{i}.log").read_text() for i in range(processes)]
    return Run(results, scored, logs, codes, [s.get("name") for s in scenarios])


def info(endpoint: str) -> Any:
    """Waits for a server and asks what it is."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        request = reward_pb2.RewardServiceGetInfoRequest()
        return stub.GetInfo(request, timeout=60, wait_for_ready=True).info


SCENARIOS = [
    {"run": "train", "steps": 5},
    {"run": "train", "steps": 3, "beta": 0.1, "iterations": 2},
    {
        "run": "train",
        "steps": 3,
        "beta": 0.1,
        "mini": 8,
        "train_micro": 4,
        "rollout_micro": 8,
        "logps_micro": 8,
    },
    {"run": "train", "steps": 3, "batch": 1, "layers": 2},
    {"run": "train", "steps": 5, "mesh": [4, 1]},
    {"run": "train", "steps": 5, "order": [0, 2, 1, 3]},
    {"run": "train", "steps": 2, "eval_every": 1},
    {"run": "reward_step_hlo"},
    {"run": "train", "name": "runs", "steps": 2, "rollout_micro": 4},
    {"run": "train", "name": "torn runs", "steps": 1, "rollout_micro": 1},
]
MICRO = {"run": "train", "mini": 8, "train_micro": 2, "rollout_micro": 4, "logps_micro": 4}
LOCAL = {"run": "train", "steps": 3, "data": "local", "shares": 2, "share_of": [0, 1]}
TWO_PROCESS_SCENARIOS = [
    *SCENARIOS,
    {**LOCAL, "name": "local"},
    {**LOCAL, "name": "copies", "share_of": [0, 0]},
    {"run": "agreement", "name": "agreement"},
    {**MICRO, **LOCAL, "name": "values local", "values": True},
    {**LOCAL, "name": "chance", "same_at": [1]},
]
# What the dataset holds: values of all kinds, ids without a token. More of it is in test_data.py.
DATA = [
    {**MICRO, "name": "values micro", "values": True, "steps": 2},
    {"run": "train", "name": "beyond", "vocab": 34, "steps": 3},
]
DISAGREEMENTS = [
    {**LOCAL, "name": "bytes", "bad_prompt": [None, "bytes"]},
    {**LOCAL, "name": "uneven", "batches_less": [0, 1]},
    {**LOCAL, "name": "sizes", "rows_less": [0, 2]},
    {**LOCAL, "name": "lengths", "prompt_prefix": ["", "1+1="]},
    {**LOCAL, "name": "policy", "policies": ["mask", "abort"]},
    {**LOCAL, "name": "tokenizer", "new_tokens": [[], ["<new>"]]},
]
FAILURES = [
    {"name": "mask", "run": "train", "steps": 2, "fail": True},
    {"name": "value", "run": "train", "steps": 2, "fail": True, "on_failed_row": "value=-1"},
    {"name": "abort", "run": "train", "steps": 2, "fail": True, "on_failed_row": "abort"},
    {"name": "fraction", "run": "train", "steps": 2, "fail": True, "max_failed_fraction": 0.01},
]


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one process has compiled the next one reads: most of these programs are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        yield


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process with four devices."""
    return launch(tmp_path_factory.mktemp("one"), 1, [*SCENARIOS, *FAILURES, *DATA], 800)


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with two devices each."""
    return launch(
        tmp_path_factory.mktemp("two"),
        2,
        TWO_PROCESS_SCENARIOS + FAILURES + DISAGREEMENTS,
        800,
    )


@pytest.fixture(scope="session")
def more_two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with other scenarios."""
    apart = {"run": "train", "name": "beyond", "vocab": 34, "steps": 3, "order": [0, 2, 1, 3]}
    stock = {"run": "stock_rollout", "name": "stock"}
    return launch(tmp_path_factory.mktemp("more-two"), 2, [apart, stock], 800)


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four processes with one device each."""
    return launch(tmp_path_factory.mktemp("four"), 4, [SCENARIOS[0], SCENARIOS[2]], 800)


@pytest.fixture(scope="session")
def more_four(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with other scenarios."""
    return launch(tmp_path_factory.mktemp("more-four"), 4, [SCENARIOS[1], SCENARIOS[3]], 800)
