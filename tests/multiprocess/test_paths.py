# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Three ways to get rewards give the same training, and the reward operation stands alone."""

from __future__ import annotations

import pytest

from tests.multiprocess.conftest import Run, launch

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(1500)]

SAME = ("tokens", "advantages", "losses", "rewards", "modes", "failed", "params")
PATHS = {
    "grpc": {"path": "grpc"},
    "callback": {"path": "callback"},
    "allgather": {"path": "allgather"},
    "first": {"path": "allgather", "score_on": "first"},
}
# Rollout micro-batches of several training micro-batches, rows that fail, a reference model.
MERGED = {
    "run": "train",
    "steps": 2,
    "beta": 0.1,
    "fail": True,
    "mini": 8,
    "train_micro": 2,
    "rollout_micro": 4,
    "logps_micro": 8,
}
# Tensor parallelism across two processes, of which one is held up here and there.
LATE = {
    "run": "train",
    "steps": 50,
    "batch": 4,
    "order": [0, 2, 1, 3],
    "fail": True,
    "on_failed_row": "value=0",
    "max_failed_fraction": 1.0,
}
LATE_PATHS = ("grpc", "callback", "allgather")
OP = {"run": "path_scenarios:op_in_jit", "width": 8, "timeout_s": 60}
NOBODY = {"endpoint": "unix:/nowhere/reward.sock", "timeout_s": 2}
# More than what JAX copies at once, on every device.
BIG = {**OP, "name": "big op", "width": 40_000, "mesh": [4, 1]}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process with four devices."""
    scenarios = [{**MERGED, **path, "name": name} for name, path in PATHS.items()]
    ops = [{**OP, "name": "op"}, BIG, {**OP, **NOBODY, "name": "dead op"}]
    return launch(tmp_path_factory.mktemp("paths-1"), 1, [*scenarios, *ops], 600)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with two devices each, which iterate data of their own."""
    local = {**MERGED, "data": "local", "shares": 2, "share_of": [0, 1]}
    late = {**LATE, "late": [1], "pause_s": 0.05}
    scenarios = [
        *({**local, **path, "name": name} for name, path in PATHS.items()),
        {**LATE, "name": "in time"},
        *({**late, **PATHS[name], "name": f"late {name}"} for name in LATE_PATHS),
        {**OP, "name": "op", "order": [0, 2, 1, 3]},
        {**OP, **NOBODY, "name": "dead op", "order": [0, 2, 1, 3]},
        {
            **LATE,
            "name": "lost",
            "path": "callback",
            "order": None,
            "steps": 3,
            "lose_server_at": 0,
            "reward_timeout_s": 3,
        },
    ]
    return launch(tmp_path_factory.mktemp("paths-2"), 2, scenarios, 1200)


@pytest.mark.parametrize("path", PATHS)
def test_paths_give_the_same_training(one: Run, two: Run, path: str) -> None:
    """Tokens, rewards, advantages, losses and parameters, in one process and in two."""
    for run, processes in ((one, 1), (two, 2)):
        want = run.of("grpc")
        assert 0 < sum(want["failed"]) < 8 * len(want["failed"])
        for process in range(processes):
            for name in SAME:
                assert run.of(path, process)[name] == want[name], name


@pytest.mark.parametrize("path", LATE_PATHS)
def test_a_late_process_changes_nothing(two: Run, path: str) -> None:
    """50 steps with pauses in the data, before sending and in the functions: the same run."""
    for process in (0, 1):
        for name in SAME:
            assert two.of(f"late {path}", process)[name] == two.of("in time", process)[name], name
    assert len(two.of(f"late {path}")["rewards"]) == 50


@pytest.mark.parametrize(("path", "rows"), [("grpc", [16, 0]), ("callback", [16, 0])])
def test_each_row_is_sent_by_its_owner(two: Run, path: str, rows: list[int]) -> None:
    """The operation sends no row twice, though two processes hold it."""
    for process in (0, 1):
        sent = two.of(f"late {path}", process)["row_ids"]
        assert sum(len(call) for call in sent) == 50 * rows[process]


def test_gathered_rows_go_to_no_server(one: Run) -> None:
    """Functions of the training process are all that scores them."""
    assert one.of("allgather")["row_ids"] == []
    assert one.of("first")["row_ids"] == []


@pytest.mark.parametrize("name", ["op", "big op"])
def test_op_in_a_program_of_ones_own(one: Run, name: str) -> None:
    """Rewards as the client gives them, sharded by rows; a row that was not put is failed."""
    got = one.of(name)
    assert got["specs"] == ["P('fsdp',)"] * 3
    host = got["host"]
    assert host[3] == -1 or not got["valid"][3]
    assert [t for i, t in enumerate(got["totals"]) if i != 3] == host[:3] + host[4:]
    assert got["valid"] == [total != -1 for total in got["totals"]]
    assert got["loss"] == pytest.approx(2 * sum(t for t in got["totals"] if t != -1))
    failed = dict(got["failures"])
    assert failed.pop(3) == "MISSING"
    assert set(failed.values()) == {"ERROR"}
    assert sorted([*failed, 3]) == [i for i, ok in enumerate(got["valid"]) if not ok]


def test_op_gives_all_processes_the_same(one: Run, two: Run) -> None:
    """With replicas in two processes both have what one process has."""
    for process in (0, 1):
        got = two.of("op", process)
        for name in ("rewards", "totals", "valid", "loss"):
            assert got[name] == one.of("op")[name], name
    assert two.of("op", 0)["owned"] == list(range(16))
    assert two.of("op", 1)["owned"] == []


def test_taken_rows_are_gone(one: Run) -> None:
    """What was taken is not kept: the host's memory does not grow."""
    assert set(one.of("op")["again"]) == {"MISSING"}


def test_dead_server_is_a_status(one: Run, two: Run) -> None:
    """No exception comes out of the program; all rows are failed, and the host knows why."""
    for got in (one.of("dead op"), two.of("dead op", 0)):
        assert got["valid"] == [False] * 16
        assert got["loss"] == 0
        failed = dict(got["failures"])
        assert failed.pop(3) == "MISSING"
        assert set(failed.values()) == {"UNAVAILABLE"}
        assert got["strict"].startswith("Unavailable: reward server at unix:/nowhere/reward.sock")
    assert two.of("dead op", 1)["valid"] == [False] * 16


def test_lost_server_ends_the_run_on_all(two: Run) -> None:
    """With the operation, too, all processes raise the same error, which names the process."""
    errors = [two.raw("lost", process)["error"] for process in (0, 1)]
    assert errors[0] == errors[1]
    assert errors[0].startswith("ProcessesDisagree: process 1 failed at 'rewards of step ")
    assert "Unavailable: reward server at" in errors[0]


def test_no_exception_was_logged_by_the_runtime(one: Run, two: Run) -> None:
    """JAX logs an exception that leaves a callback."""
    for log in (*one.logs, *two.logs):
        assert "io_callback failed" not in log
        assert "rows could not be sent" not in log
