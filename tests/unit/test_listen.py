# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the paths that a server may listen on."""

from __future__ import annotations

import contextlib
import socket

import pytest

from reward_server import unix_socket
from reward_server.batch import StartError
from reward_server.unix_socket import hold


@pytest.fixture
def bound(tmp_path):
    """A socket that is bound, and its path."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(tmp_path / "s"))
        yield made, tmp_path / "s"


def test_a_live_socket_is_not_taken_over_without_its_lock(bound):
    """Cleaners of /tmp remove files that nobody has opened for days, locks among them."""
    made, path = bound
    made.listen()
    with pytest.raises(StartError, match="another server answers at"), hold(f"unix:{path}"):
        pass


def test_a_dead_socket_is_replaced(bound):
    """One whose server was killed."""
    _, path = bound
    with hold(f"unix:{path}"):
        pass


@pytest.mark.parametrize("name", ["", "//", "{}", "{}/", "{}/new/"])
def test_a_path_names_a_socket(tmp_path, name):
    """Nothing, from an unset variable, or a folder; no lock is left beside it."""
    with (
        pytest.raises(StartError, match="`--listen` must name a socket, unix:PATH, got 'unix:"),
        hold("unix:" + name.format(tmp_path / "d" if "new" in name else tmp_path)),
    ):
        pass
    assert not list(tmp_path.iterdir())
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


def test_a_file_is_not_replaced(tmp_path):
    """Whatever it holds is somebody's."""
    (tmp_path / "s").write_text("mine")
    with (
        pytest.raises(StartError, match="is no socket"),
        hold(f"unix:{tmp_path}/s"),
    ):
        pass
    assert (tmp_path / "s").read_text() == "mine"


def test_a_lock_that_was_removed_is_not_held(tmp_path, monkeypatch):
    """A server may open the lock of another one, which removes it before it can be locked."""
    taken = []

    def flock(descriptor, operation):
        if not taken:
            (tmp_path / "s.lock").unlink()
        taken.append(operation)
        real(descriptor, operation)

    real = unix_socket.fcntl.flock
    monkeypatch.setattr(unix_socket.fcntl, "flock", flock)
    with hold(f"unix:{tmp_path}/s"):
        assert len(taken) == 2
        with pytest.raises(StartError, match="another server holds"), hold(f"unix:{tmp_path}/s"):
            pass
        assert (tmp_path / "s.lock").exists()
    assert not list(tmp_path.iterdir())
