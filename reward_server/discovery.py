# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the workers are: a list of addresses, a name that is looked up, a file that is watched."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar, cast

from reward_server.batch import StartError
from reward_server.printable import sendable

# How soon workers are found and left; asked again and again, since neither tells of changes.
NAME_EVERY_S = 2.0
FILE_EVERY_S = 1.0
LOOK_TIMEOUT_S = 10.0
_DNS = "dns:///"
_FILE = "file:"
_RULE = "HOST:PORT,..., unix:PATH,..., dns:///NAME:PORT or file:PATH"


T = TypeVar("T")


class Unlisted(Exception):  # noqa: N818 - named for the state
    """The list can't be had now, which says nothing about workers; the message says why."""


class Discovery:
    """Lists the addresses of workers.

    Attributes:
        every_s: seconds between two looks, or None if the list never changes.
        host: name that certificates of all workers hold, or None for that of each address.
    """

    every_s: float | None = None
    host: str | None = None

    async def look(self) -> list[str]:
        """Lists the addresses of now.

        Raises:
            Unlisted: there is no list now.
        """
        raise NotImplementedError


class _Bounded(Generic[T]):
    """Runs a call that may hang, a read from a dead file system for example.

    In a daemon thread: those of `asyncio.to_thread` would keep the process from ending. A call that
    hangs is waited for again, so that there is never more than one.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._running: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """Returns what the call returns.

        Raises:
            OSError: it takes longer than LOOK_TIMEOUT_S.
            Exception: what the call raises.
        """
        if self._running is None:
            self._running = asyncio.get_running_loop().create_future()
            threading.Thread(target=self._run, args=(self._running,), daemon=True).start()
        done, _ = await asyncio.wait([self._running], timeout=LOOK_TIMEOUT_S)
        if not done:
            raise OSError(f"no answer within {LOOK_TIMEOUT_S:g} s")
        running, self._running = self._running, None
        return running.result()

    def _run(self, future: asyncio.Future[T]) -> None:
        result: T | None = None
        failed: Exception | None = None
        try:
            result = self._call()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed = error

        def end() -> None:
            if failed is not None:
                future.set_exception(failed)
            else:
                future.set_result(cast("T", result))

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            future.get_loop().call_soon_threadsafe(end)


class _Addresses(Discovery):
    def __init__(self, spec: str) -> None:
        self._addresses = [address.strip() for address in spec.split(",")]
        for address in self._addresses:
            if not is_address(address):
                raise StartError(f"`--workers` must be {_RULE}, got {address!r}.")

    async def look(self) -> list[str]:
        return self._addresses


class _Name(Discovery):
    every_s = NAME_EVERY_S

    def __init__(self, spec: str) -> None:
        name = spec.removeprefix(_DNS)
        if not is_address(name):
            raise StartError(f"`--workers` must be {_RULE}, got {spec!r}.")
        self.host, _, self._port = name.rpartition(":")

        self._ask = _Bounded(
            functools.partial(
                socket.getaddrinfo, self.host, int(self._port), type=socket.SOCK_STREAM
            )
        )

    async def look(self) -> list[str]:
        try:
            found = await self._ask()
        except OSError as error:
            raise Unlisted(f"{self.host} can't be looked up: {error}.") from error
        hosts = {str(address[4][0]) for address in found}
        return sorted(
            f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts
        )


class _File(Discovery):
    every_s = FILE_EVERY_S

    def __init__(self, spec: str) -> None:
        self._path = Path(spec.removeprefix(_FILE).removeprefix("//"))
        if not self._path.name:
            raise StartError(f"`--workers` must be {_RULE}, got {spec!r}.")
        self._read = _Bounded(functools.partial(self._path.read_text, "utf-8"))

    async def look(self) -> list[str]:
        try:
            text = await self._read()
        except (OSError, ValueError) as error:
            raise Unlisted(f"{self._path} can't be read: {error}.") from error
        addresses = []
        for number, line in enumerate(text.splitlines(), 1):
            address = line.partition("#")[0].strip()
            if not address:
                continue
            if not is_address(address):
                raise Unlisted(
                    f"{self._path} line {number} must be HOST:PORT or unix:PATH, got {address!r}."
                )
            addresses.append(address)
        if not addresses:
            raise Unlisted(f"{self._path} must list an address, got none.")
        return addresses


def parse(spec: str) -> Discovery:
    """Reads the value of `--workers`.

    Raises:
        StartError: it is none.
    """
    if spec.startswith(_DNS):
        return _Name(spec)
    if spec.startswith(_FILE):
        return _File(spec)
    return _Addresses(spec)


def is_address(text: str) -> bool:
    """Whether a text is HOST:PORT or unix:PATH.

    Example:
        `is_address("10.0.0.1:7000")` is True, `is_address("10.0.0.1")` is not.
    """
    if sendable(text) != text:
        return False
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in host and " " not in host and port.isdecimal()
