# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a job meet, or each says what is missing."""

from __future__ import annotations

import socket
import threading

import pytest

from trainer import rendezvous
from trainer.run_config import ConfigError


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def meet(port: int, numbers: list[tuple[int, int]], timeout_s: float) -> list[str]:
    """What each process gets: "", or its error."""
    errors = [""] * len(numbers)

    def run(index: int) -> None:
        process, processes = numbers[index]
        try:
            rendezvous.meet(f"127.0.0.1:{port}", processes, process, timeout_s=timeout_s)
        except ConfigError as error:
            errors[index] = str(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(numbers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return errors


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of proxies as they were, after each test."""
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.setenv(name, "")


def test_all_go_when_all_have_come(port: int) -> None:
    """Whatever the order, and the port is free again for JAX."""
    with socket.socket() as stranger:
        assert meet(port, [(2, 3), (1, 3), (0, 3)], 30) == ["", "", ""]
        assert stranger.connect_ex(("127.0.0.1", port)) != 0


def test_process_that_does_not_come_is_named(port: int) -> None:
    """Process 0 names it and tells those that came."""
    errors = meet(port, [(0, 3), (1, 3)], 2)
    assert "processes [2] have not come after 2 s" in errors[0]
    assert errors[1] == errors[0]


def test_no_process_0(port: int) -> None:
    """The others say that nobody answers, with the address and the remedy."""
    (error,) = meet(port, [(1, 2)], 2)
    assert "process 0 does not answer" in error
    assert f"--coordinator 127.0.0.1:{port}" in error
    assert "Start process 0" in error


def test_name_that_does_not_resolve() -> None:
    """It is named."""
    with pytest.raises(ConfigError, match=r"the name nohost\.invalid does not resolve"):
        rendezvous.meet("nohost.invalid:7700", 2, 1, timeout_s=1)


def test_port_that_is_taken(port: int) -> None:
    """Process 0 says so, and the others that no process 0 is there."""
    with socket.create_server(("", port)):
        errors = meet(port, [(0, 2)], 1)
    assert f"port {port} can't be listened on: Address already in use" in errors[0]


def test_numbers_that_do_not_fit(port: int) -> None:
    """The process with the wrong number is told; the others go."""
    errors = meet(port, [(0, 3), (1, 3), (1, 3), (2, 3)], 10)
    assert [errors[0], errors[3]] == ["", ""]
    assert min(errors[1:3]) == ""
    errors = meet(port, [(0, 2), (1, 3)], 2)
    assert "--num-processes must be equal, process 0 has 2, got 3." in errors[1]
