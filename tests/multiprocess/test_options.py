# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of Tunix and engines of one process: two processes train as one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.multiprocess.conftest import Run, launch

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(1800)]

LORA = {"lora": True, "steps": 3}
TWICE = {"iterations": 2, "rollout": {"temperature": 0.7}}
LORA_TWICE = {**LORA, **TWICE, "beta": 0.1}
ENGINE = {"engine": ""}
CASES: dict[str, dict[str, Any]] = {
    "lora whole": LORA_TWICE,
    "engine": ENGINE,
    "engine, replicas apart": {**ENGINE, "order": [0, 2, 1, 3]},
    "engine twice": {**ENGINE, **TWICE, "training": {"mini_batch_size": 4}},
    "engine whole": {**ENGINE, **LORA},
    "shuffled": {
        "seeds": [7, 7],
        "training": {"mini_batch_size": 8, "train_micro_batch_size": 2},
    },
    "axes": {"mesh": [2, 2, 1], "axes": ["data", "fsdp", "tp"], "row_axes": ["data", "fsdp"]},
    "many": {
        "steps": 3,
        "max_steps": 2,
        "eval_every": 1,
        "rollout": {"top_k": 5, "top_p": 0.8, "eos_tokens": [1, 5, 9], "seed": 11},
        "eval_rollout": {"max_tokens_to_generate": 6, "temperature": 0.1},
    },
}
FAULTS = {
    "raises": "OSError: the engine is broken",
    "few": "the engine must return 16 completions, got 15.",
    "long": "completion 1 of the engine must have at most 4 ids, got",
    "range": "completion 1 of the engine must have ids in [0, 32), got 32.",
    "no end": "completion 1 of the engine must end with an end token [1] or have 4 ids, got 1",
    "weights": "OSError: no memory for weights",
}


def scenarios(folder: Path, processes: int) -> list[dict[str, Any]]:
    """What a run of so many processes does."""
    cases = {**CASES, "many": {**CASES["many"], "logs": str(folder / "logs")}}
    for kind, options in (("lora", LORA_TWICE), ("engine", {**ENGINE, **LORA})):
        kept = {**options, "checkpoint": str(folder / f"kept-{kind}")}
        cases |= {f"{kind} stopped": {**kept, "stop_at": 1}, f"{kind} resumed": kept}
    if processes == 2:
        cases |= {fault: {"engine": fault} for fault in FAULTS}
        cases["two seeds"] = {"seeds": [1, 2]}
    return [{"run": "option_scenarios:train", "name": name, **case} for name, case in cases.items()]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process with four devices."""
    folder = tmp_path_factory.mktemp("options-one")
    return launch(folder, 1, scenarios(folder, 1), 700)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with two devices each."""
    folder = tmp_path_factory.mktemp("options-two")
    return launch(folder, 2, scenarios(folder, 2), 1000)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one(one: Run, two: Run, name: str) -> None:
    """Tokens, rewards, advantages, losses, norms and parameters are equal bit for bit."""
    whole = one.of(name)
    ours = {"engine_rows", "row_ids", "logs"}
    if name == "axes":
        # Gradients of four shards are added in another order between processes.
        ours |= {"params", "frozen", "param_sum"}
    for process in (0, 1):
        other = two.of(name, process)
        for what in whole.keys() - ours:
            assert other[what] == whole[what], what
        assert other["param_sum"] == pytest.approx(whole["param_sum"], rel=1e-6)
    assert len({str(step) for step in whole["tokens"]}) > 1
    assert any(value for step in whole["advantages"] for value in step)


@pytest.mark.parametrize("name", ["lora whole", "engine whole"])
def test_lora_trains_its_matrices_alone(two: Run, name: str) -> None:
    """The frozen weights stay and the matrices change."""
    result = two.of(name)
    assert result["frozen"] == result["before"]["frozen"]
    assert result["params"] != result["before"]["params"]
    assert all(norm > 0 for _, *norms in result["losses"] for norm in norms)


@pytest.mark.parametrize("kind", ["lora", "engine"])
def test_lora_goes_on_from_its_checkpoint(one: Run, two: Run, kind: str) -> None:
    """A run that was stopped ends with the rewards and parameters of an unbroken one."""
    for run, processes in ((one, 1), (two, 2)):
        for process in range(processes):
            whole, stopped, rest = (
                run.of(f"{kind} {part}", process) for part in ("whole", "stopped", "resumed")
            )
            cut = len(stopped["rewards"])
            assert 0 < cut < len(whole["rewards"])
            for what in ("rewards", "tokens", "advantages"):
                assert rest[what] == whole[what][cut:], what
            assert rest["losses"] == whole["losses"][-len(rest["losses"]) :]
            assert rest["params"] == whole["params"] != stopped["params"]


def test_an_engine_samples_each_row_once(one: Run, two: Run) -> None:
    """Rows that lie on both processes are sampled by one, and it does not matter by which."""
    for name in ("engine", "engine, replicas apart"):
        rows = one.of(name)["engine_rows"]
        assert rows == 2 * 8 * 4
        assert sum(two.of(name, process)["engine_rows"] for process in (0, 1)) == rows
    assert one.of("engine")["tokens"] == one.of("engine, replicas apart")["tokens"]
    assert two.of("engine, replicas apart", 1)["engine_rows"] == 0


def test_an_engine_gets_weights_before_and_after_each_step(two: Run) -> None:
    """All at first, then those that are trained."""
    first, *rest = two.of("engine")["engine_updates"]
    assert rest == [first] * 2
    first, *rest = two.of("engine whole")["engine_updates"]
    assert len(rest) == 3
    assert 0 < rest[0] < first
    assert two.of("engine whole")["global_steps"] == 3


@pytest.mark.parametrize("name", ["lora whole", "engine twice"])
def test_old_log_probabilities_are_those_of_the_loss(two: Run, name: str) -> None:
    """At a temperature that is not 1 the first ratio of a step is 1."""
    differs = two.of(name)["old_differs"]
    assert differs
    assert max(differs) < 1e-5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_engine_stops_all(two: Run, fault: str) -> None:
    """Both processes end with one error that names the process and what is wrong."""
    errors = [two.raw(fault, process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1]
    assert "process 1 failed at " in errors[0]
    assert FAULTS[fault] in errors[0]


def test_another_seed_of_shuffling_is_an_error(two: Run) -> None:
    """Micro-batches in another order on each process would be mixed up without a word."""
    for process in (0, 1):
        error = two.raw("two seeds", process)["error"]
        assert "`data_shuffle_seed` must be equal on all processes: process 0 has 1" in error


def test_many_options_at_once(one: Run, two: Run) -> None:
    """Evaluation has its own lengths, updates are limited, and process 0 logs and profiles."""
    for run in (one, two):
        result = run.of("many")
        lengths = dict(zip(result["modes"], result["lengths"], strict=True))
        assert set(lengths) == {"train", "eval"}
        assert max(map(len, (row for step in result["tokens"] for row in step))) == 6
        assert result["modes"].count("train") == 2
        for folder in ("metrics", "profile"):
            assert any(Path(result["logs"], folder).rglob("*.*"))
