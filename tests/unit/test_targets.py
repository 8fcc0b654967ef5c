# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose socket is dialled, and what is dialled when another one takes its path."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from shardward import targets
from shardward.targets import Refused, Target, trusts

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OTHER, SERVER = 1234, 65532


@pytest.fixture
def root_folder():
    """A folder that only root can have made, as the mount of a container."""
    with tempfile.TemporaryDirectory(prefix="shardward-", dir="/run") as name:
        yield Path(name)


def bind(path, owner=None):
    """A socket at a path that listens; it does not wait for callers."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    made.setblocking(False)
    if owner is not None:
        os.chown(path, owner, owner)
    return made


@pytest.mark.parametrize(
    ("me", "owner", "trusted"),
    [
        (0, 0, True),
        (OTHER, OTHER, True),
        (OTHER, 0, True),
        (OTHER, SERVER, False),
        (0, OTHER, False),
    ],
)
def test_who_is_trusted_in_a_folder_that_all_share(me, owner, trusted):
    """Oneself and root; root can't know who took the path."""
    assert trusts(me, owner, Path("/tmp/s")) is trusted


@as_root
@pytest.mark.parametrize(
    ("mode", "folder_of", "trusted"),
    [
        (0o777, 0, True),
        (0o755, SERVER, True),
        (0o700, OTHER, False),
        (0o1777, 0, False),
        (0o1777, SERVER, False),
    ],
)
def test_root_trusts_the_owner_of_a_folder_made_for_him(root_folder, mode, folder_of, trusted):
    """A server in a container has a user of its own; in a folder of users' anybody may be it."""
    folder = root_folder / "run"
    folder.mkdir()
    with bind(folder / "s", SERVER):
        folder.chmod(mode)
        os.chown(folder, folder_of, folder_of)
        assert trusts(0, SERVER, folder / "s") is trusted
        assert not trusts(OTHER, SERVER, folder / "s")


@as_root
def test_root_follows_no_link_to_what_is_somebody_elses(root_folder):
    """The folders behind a link say nothing of who made the link."""
    (root_folder / "link").symlink_to(root_folder)
    with bind(root_folder / "s", SERVER):
        assert trusts(0, SERVER, root_folder / "s")
        assert not trusts(0, SERVER, root_folder / "link" / "s")
        assert not trusts(0, SERVER, root_folder / "link" / ".." / root_folder.name / "s")
        assert not trusts(0, SERVER, root_folder / "none")


def test_another_address_is_dialled_as_it_is():
    """A port has no owner."""
    target = Target("127.0.0.1:5000")
    assert (target.text, target.replaced) == ("127.0.0.1:5000", False)
    target.close()


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
def test_what_was_looked_at_is_dialled(tmp_path, form):
    """Also when another socket lies at the path a moment later."""
    first = bind(tmp_path / "s")
    target = Target(form.format(tmp_path / "s"))
    (tmp_path / "s").rename(tmp_path / "old")
    assert not target.replaced
    with first, bind(tmp_path / "s") as second, socket.socket(socket.AF_UNIX) as caller:
        assert target.replaced
        caller.connect(target.text.removeprefix("unix:"))
        first.accept()[0].close()
        with pytest.raises(BlockingIOError):
            second.accept()
    target.close()


def test_nothing_is_dialled_until_it_has_been_looked_at(tmp_path):
    """A target without a socket never connects to one that comes later."""
    target = Target(f"unix:{tmp_path}/s")
    assert not target.replaced
    with bind(tmp_path / "s"), socket.socket(socket.AF_UNIX) as caller:
        assert target.replaced
        with pytest.raises(FileNotFoundError):
            caller.connect(target.text.removeprefix("unix:"))
    target.close()


@as_root
def test_a_refusal_says_whose_and_what_to_do(tmp_path):
    """Path, owner, oneself and the remedy; nothing stays open."""
    with bind(tmp_path / "s", OTHER):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(Refused) as error:
            Target(f"unix:{tmp_path}/s")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert str(error.value).startswith(
        f"the socket {tmp_path}/s belongs to uid {OTHER}, and this process runs as uid 0:"
    )
    assert "--listen unix:$XDG_RUNTIME_DIR/" in str(error.value)


def test_without_descriptors_of_paths_the_path_is_looked_at(tmp_path, monkeypatch):
    """As on other systems than Linux."""
    monkeypatch.setattr(targets, "_BY_DESCRIPTOR", False)
    address = f"unix:{tmp_path}/s"
    missing = Target(address)
    made = bind(tmp_path / "s")
    assert missing.replaced
    target = Target(address)
    assert (target.text, target.replaced) == (address, False)
    new = bind(tmp_path / "new")
    (tmp_path / "new").rename(tmp_path / "s")
    assert target.replaced
    if os.geteuid() == 0:
        os.chown(tmp_path / "s", OTHER, OTHER)
        with pytest.raises(Refused, match=f"belongs to uid {OTHER}"):
            Target(address)
    made.close()
    new.close()
