# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What is dialled for an address: a unix socket only after a look at its owner.

Here since trainers and servers both dial.
"""

from __future__ import annotations

import os
import stat
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import grpc

from shardward.addresses import socket_path

# A target's text holds a number that means another socket later: what one channel has connected
# must not serve another channel with the same text.
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
# Nothing can ever lie there, so that a connection waits for what has been looked at.
_NOWHERE = "unix:/proc/self/fd/none"
_BY_DESCRIPTOR = sys.platform == "linux" and Path("/proc/self/fd").is_dir()


class Refused(Exception):  # noqa: N818 - named for what was done
    """A socket that is not dialled; the message says whose it is and what to do."""


class Target:
    """What an address stands for now: one socket, whatever its path stands for later.

    The socket is held by a descriptor, and that is dialled: between the look at its owner and the
    connection, or before a connection is made again, nobody can put another one in its place.
    Without descriptors of paths (not on Linux, or without /proc) the path is dialled, and somebody
    can.

    Attributes:
        text: for gRPC. Nothing answers there while no socket lies at the path.
    """

    def __init__(self, address: str) -> None:
        """Looks at what is there; only unix sockets have an owner.

        Raises:
            Refused: it belongs to somebody else, or can't be looked at.
        """
        self.text = address
        self._path = socket_path(address)
        self._file: os.stat_result | None = None
        self._release: weakref.finalize[..., Target] | None = None
        if self._path is None:
            return
        try:
            self._look(self._path)
        except PermissionError as error:
            raise Refused(
                f"the socket {self._path} can't be looked at by uid {os.geteuid()}:"
                f" {error.strerror}. Call as the user who started the server."
            ) from error
        except OSError:
            # gRPC says why: most often there is no such file.
            self.text = _NOWHERE if _BY_DESCRIPTOR else address
            return
        assert self._file is not None
        if not trusts(os.geteuid(), self._file.st_uid, self._path):
            self.close()
            raise Refused(_foreign(self._path, self._file.st_uid))

    def _look(self, path: Path) -> None:
        if not _BY_DESCRIPTOR:
            self._file = path.stat()
            return
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        # Also for a client that nobody closes: gRPC closes a channel that is no more referred to.
        self._release = weakref.finalize(self, os.close, descriptor)
        self._release.atexit = False
        self._file = os.fstat(descriptor)
        self.text = f"unix:/proc/self/fd/{descriptor}"

    @property
    def replaced(self) -> bool:
        """Whether another file lies at the path now: a server was started again, or it is a trap.

        If none does, an open connection is as good as before.
        """
        if self._path is None:
            return False
        try:
            now = self._path.stat()
        except OSError as error:
            return self._file is None and isinstance(error, PermissionError)
        return self._file is None or not os.path.samestat(now, self._file)

    def close(self) -> None:
        """Lets go of the socket; its channel must be closed before."""
        if self._release is not None:
            self._release()


class Dialler:
    """A channel to an address, made anew when another socket lies there. Not for several threads.

    Example:
        >>> import contextlib
        >>> with contextlib.closing(Dialler("unix:/none/s", grpc.insecure_channel)) as dialler:
        ...     stub = HealthStub(dialler.channel())  # doctest: +SKIP
    """

    def __init__(self, address: str, make: Callable[[str], grpc.Channel]) -> None:
        """Dials nothing yet.

        Args:
            address: of the server.
            make: makes a channel, with `OPTIONS` among its options, to the text of a target.
        """
        self._address, self._make = address, make
        self._target: Target | None = None
        self._channel: grpc.Channel | None = None

    def channel(self) -> grpc.Channel:
        """The channel for the next call; ask again for every call.

        Calls under way on one that is replaced end as CANCELLED.

        Raises:
            Refused: see `Target`; calls under way go on.
        """
        if self._channel is None or self._target is None or self._target.replaced:
            target = Target(self._address)
            self.close()
            self._target, self._channel = target, self._make(target.text)
        return self._channel

    def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None:
            self._channel.close()
        if self._target is not None:
            self._target.close()
        self._channel = self._target = None


def trusts(me: int, owner: int, path: Path) -> bool:
    """Whether a user takes what a socket's owner says for true.

    Everybody trusts himself and root, who can do anything anyhow. Root also trusts the owner of a
    socket where nobody but root and that owner has made the folders: a server in a container has a
    user of its own and a folder that is mounted for both.

    Args:
        me: uid of the caller.
        owner: uid of the socket's owner.
        path: of the socket.
    """
    if owner in (0, me):
        return True
    if me != 0:
        return False
    whole = path.absolute()
    try:
        # Whose the folders behind a link are says nothing of who made the link.
        if whole.resolve(strict=True) != whole:
            return False
        folders = [folder.stat() for folder in whole.parents]
    except OSError:
        return False
    # A sticky folder, /tmp say, is there to be shared by users.
    return all(f.st_uid in (0, owner) and not f.st_mode & stat.S_ISVTX for f in folders)


def _foreign(path: Path, owner: int) -> str:
    return (
        f"the socket {path} belongs to uid {owner}, and this process runs as uid {os.geteuid()}:"
        " another user of this machine may have taken the path. Let the server listen in a folder"
        " of its user's own (--listen unix:$XDG_RUNTIME_DIR/reward.sock), and call as that user."
    )
