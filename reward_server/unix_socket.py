# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The path of a unix socket: held by one process at a time, and left as it was found."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from shardward.addresses import SOCKET_PATH_BYTES

from reward_server.batch import StartError

# gRPC removes whatever lies at the path that it has bound when it stops, another server's socket,
# too. So it binds this one, which is renamed.
_NEW = ".new"
_PATH_BYTES = SOCKET_PATH_BYTES - len(_NEW)


class SocketPath:
    """A path that this process holds.

    Attributes:
        bind_address: address to bind, before `publish`.
    """

    def __init__(self, path: Path) -> None:
        """Takes a path whose lock is held."""
        self._path, self._new = path, Path(f"{path}{_NEW}")
        self._made: os.stat_result | None = None
        self.bind_address = f"unix:{self._new}"

    def publish(self) -> None:
        """Moves the socket that was bound to its path; a dead one there is replaced."""
        self._made = self._new.stat()
        self._new.rename(self._path)

    def remove(self) -> None:
        """Removes the socket, if it is still this process's."""
        if self._made is not None:
            _remove(self._path, self._made)


@contextlib.contextmanager
def hold(listen: str) -> Iterator[SocketPath | None]:
    """Holds the path of a unix socket; a live socket is never taken over.

    Neither socket nor lock file is left behind, unless the process is killed: then the next one
    replaces them.

    Args:
        listen: address of a server; nothing is held for one without a path.

    Raises:
        StartError: it is no path for a socket, or another server has it.
    """
    if not listen.startswith("unix:"):
        yield None
        return
    path = _checked(listen)
    lock = Path(f"{path}.lock")
    descriptor = _lock(lock, path)
    held = SocketPath(path)
    try:
        _check_dead(path)
        yield held
    finally:
        held.remove()
        _remove(lock, os.fstat(descriptor))
        os.close(descriptor)


def _lock(lock: Path, path: Path) -> int:
    """Opens and locks a lock file; its descriptor.

    Whoever had it removes it at his end, so that one may have been locked that is no more there.
    """
    while True:
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(
                f"`--listen` must be in a folder that can be written: {error}."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StartError(
                f"`--listen` must be free: another server holds {path}."
                " Stop it or take another path."
            ) from None
        if _is(lock, os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)


def _is(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), file)
    except FileNotFoundError:
        return False


def _remove(path: Path, file: os.stat_result) -> None:
    """Removes a file unless another one lies there now."""
    with contextlib.suppress(OSError):  # of a folder that is gone or read-only
        if _is(path, file):
            path.unlink()


def _checked(listen: str) -> Path:
    text = listen.removeprefix("unix:").removeprefix("//")
    path = Path(text)
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise StartError(f"`--listen` must have at most {_PATH_BYTES} bytes, got {path}.")
    if not text or text.endswith("/") or path.is_dir():
        raise StartError(f"`--listen` must name a socket, unix:PATH, got {listen!r}.")
    if path.exists() and not path.is_socket():
        raise StartError(f"`--listen` must be free: {path} is no socket. Take another path.")
    return path


def _check_dead(path: Path) -> None:
    """Refuses a socket that somebody answers at: the file of a lock may have been removed."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except OSError:  # a full queue, or another user's
            pass
    raise StartError(
        f"`--listen` must be free: another server answers at {path}. Stop it or take another path."
    )
