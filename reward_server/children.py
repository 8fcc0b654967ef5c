# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the children of a pool: one for each slot and a warm one more, however they end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from reward_server.batch import StartError
from reward_server.child_process import ChildProcess, ChildSpec
from reward_server.frames import Word

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_BACKOFF_S = 30.0

_logger = logging.getLogger(__name__)


class Children:
    """Starts children, and others in the place of those that end; callbacks run in the event loop.

    Args:
        spec: what each is started with.
        slots: how many may work at a time.
        start_timeout_s: seconds for a child to load the functions and score the probe rows.
        on_ready: called when a child has become idle, with what it says of the functions.
        on_frame: called with what a child says of its work.
        on_exit: called when a child is dead, whatever it was doing.

    Attributes:
        all: children that live, starting ones too.
        idle: those that have no work; who gives them some takes them out.
        starting: those that can't work yet, with the timer that kills them.
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        slots: int,
        start_timeout_s: float,
        on_ready: Callable[[dict[str, Any]], None],
        on_frame: Callable[[ChildProcess, dict[str, Any]], None],
        on_exit: Callable[[ChildProcess], None],
    ) -> None:
        self._spec = spec
        self._slots = slots
        self._start_timeout_s = start_timeout_s
        self._on_ready = on_ready
        self._on_frame = on_frame
        self._on_exit = on_exit
        self.all: set[ChildProcess] = set()
        self.idle: list[ChildProcess] = []
        self.starting: dict[ChildProcess, asyncio.TimerHandle] = {}
        self._ready: asyncio.Future[None] | None = None
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether there has been a child for each slot."""
        return self._ready is not None and self._ready.done()

    async def start(self) -> None:
        """Starts the children, and returns once there is one for each slot that can work.

        Raises:
            StartError: names the function and what it did wrong; the caller closes.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._fill()
        await self._ready

    async def close(self) -> int:
        """Kills every child with all of its processes; returns how many, when they are gone."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        children = list(self.all)
        for child in children:
            child.kill()
        for child in children:
            await child.exited.wait()
        return len(children)

    def give_back(self, child: ChildProcess, *, recycle: bool) -> None:
        """Takes back a child that has done its work.

        Args:
            child: the child.
            recycle: kill it, provided that another is warm: a start takes seconds.
        """
        if recycle and self.idle and not self.starting:
            _logger.debug("child recycled child_pid=%d rows=%d", child.pid, child.rows)
            child.kill()
        else:
            self.idle.append(child)

    def _fill(self) -> None:
        self._retry = None
        while not self._closed and len(self.all) < self._slots + 1:
            try:
                child = ChildProcess(self._spec, on_frame=self._frame, on_exit=self._exited)
            except OSError as error:
                self._failed(f"a child process cannot be started: {error}.")
                self._fill_later()
                return
            self.all.add(child)
            timer = asyncio.get_running_loop().call_later(self._start_timeout_s, child.kill)
            self.starting[child] = timer

    def _fill_later(self) -> None:
        delay = min(_MAX_BACKOFF_S, 2.0**self._failures) if self._failures else 0.0
        if self._retry is None and not self._closed:
            self._retry = asyncio.get_running_loop().call_later(delay, self._fill)

    def _frame(self, child: ChildProcess, frame: dict[str, Any]) -> None:
        if frame["type"] == "ready":
            self.starting.pop(child).cancel()
            self._failures = 0
            self.idle.append(child)
            self._on_ready(frame)
            if self._ready is not None and not self._ready.done() and len(self.idle) >= self._slots:
                self._ready.set_result(None)
        elif frame["type"] == "failed":
            if (timer := self.starting.pop(child, None)) is not None:
                timer.cancel()
            self._failed(frame["message"])
        else:
            self._on_frame(child, frame)

    def _failed(self, message: str) -> None:
        self._failures += 1
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(StartError(message))
        elif not self._closed and self._ready is not None and self._ready.exception() is None:
            _logger.error("child failed to start: %s", message)

    def _exited(self, child: ChildProcess) -> None:
        self.all.discard(child)
        if child in self.idle:
            self.idle.remove(child)
        if (timer := self.starting.pop(child, None)) is not None:
            timer.cancel()
            self._failed(self._start_problem(child))
        self._on_exit(child)
        if self.started:
            self._fill_later()

    def _start_problem(self, child: ChildProcess) -> str:
        name = self._spec.rewards.functions[child.shared.header[Word.FUNCTION]].name
        return (
            f"reward function {name!r} cannot be loaded: its process {child.exit_text} within"
            f" start_timeout_s={self._start_timeout_s:g}; see its error output."
        )
