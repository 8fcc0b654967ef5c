# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the children of a pool: one for each slot and a warm one more, however they end.

How many of them can work is known here and nowhere else; who asks is told the reason, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from reward_server.batch import StartError
from reward_server.child_process import ChildProcess, ChildSpec
from reward_server.shared_memory import Word, is_late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTICE_S = 10.0
_TICK_S = 0.05
_MAX_BACKOFF_S = 30.0
_MAX_DOUBLINGS = 5
# A pool whose children all take longer to start than this has a problem, though none has failed.
_SLOW_START_S = 30.0
# The first call of a function may load what later calls find loaded.
_LEAST_PROBE_S = 2.0

_logger = logging.getLogger(__name__)


class Children:
    """Starts children, and others in the place of those that end; callbacks run in the event loop.

    A start that fails is tried again, for ever, one child at a time and ever more rarely.

    Args:
        spec: what each is started with.
        slots: how many may work at a time.
        start_timeout_s: seconds for a child to load the functions and score the probe rows.
        on_ready: called when a child has become idle, with what it says of the functions.
        on_frame: called with what a child says of its work.
        on_exit: called when a child is dead, whatever it was doing.
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
        self._names = [f.name for f in spec.rewards.functions]
        self._probe_limits_s = [max(f.timeout_s, _LEAST_PROBE_S) for f in spec.rewards.functions]
        self._slots = slots
        self._start_timeout_s = start_timeout_s
        self._on_ready = on_ready
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._all: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._working: set[ChildProcess] = set()
        self._starting: dict[ChildProcess, asyncio.Task[None]] = {}
        self._ready: asyncio.Future[None] | None = None
        # Starts that failed since one succeeded, and why the last one did.
        self._failures = 0
        self._reason = ""
        self._idle_losses = 0
        self._none_since: float | None = time.monotonic()
        self._code_digests: list[str] = []
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def __iter__(self) -> Iterator[ChildProcess]:
        """Children that live, starting ones too."""
        return iter(tuple(self._all))

    def __len__(self) -> int:
        """Number of those."""
        return len(self._all)

    @property
    def alive(self) -> int:
        """Children that can work: those that wait for work and those that do some."""
        return len(self._idle) + len(self._working)

    @property
    def idle(self) -> int:
        """Children that wait for work."""
        return len(self._idle)

    @property
    def starting(self) -> int:
        """Children that can't work yet."""
        return len(self._starting)

    @property
    def slots(self) -> int:
        """How many can work at a time: all, or those that are left while no more can be started."""
        return self._slots if not self._troubled else min(self._slots, self.alive)

    @property
    def problem(self) -> str:
        """Why no child can work, though one should by now; "" if one can, or soon will."""
        if self.alive or not self._troubled:
            return ""
        return self._reason or f"no child can work for {self.outage_s:.0f} s; {self._stage()}"

    @property
    def outage_s(self) -> float:
        """Seconds for which no child could work; 0 while one can."""
        return 0.0 if self._none_since is None else time.monotonic() - self._none_since

    @property
    def started(self) -> bool:
        """Whether there has been a child for each slot."""
        return self._ready is not None and self._ready.done()

    @property
    def _troubled(self) -> bool:
        return self._failures > 0 or self.outage_s > _SLOW_START_S

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
        children = list(self._all)
        for child in children:
            self.replace(child)
        for child in children:
            await child.exited.wait()
        return len(children)

    def take(self) -> ChildProcess | None:
        """Hands out a child that has no work, to be given back or replaced; None if all have."""
        if not self._idle:
            return None
        child = self._idle.pop()
        self._working.add(child)
        return child

    def give_back(self, child: ChildProcess, *, recycle: bool) -> None:
        """Takes back a child that has done its work.

        Args:
            child: the child.
            recycle: replace it, provided that another is warm: a start takes seconds.
        """
        if child not in self._working:  # it is being replaced
            return
        if recycle and self._idle and not self._starting:
            _logger.debug("child recycled child_pid=%d rows=%d", child.pid, child.rows)
            self.replace(child)
        else:
            self._working.discard(child)
            self._idle.append(child)

    def replace(self, child: ChildProcess, *, trace: bool = False) -> None:
        """Kills a child, which gets no work from now on; another follows.

        Args:
            child: the child.
            trace: let it write down where it is, see `ChildProcess.line`.
        """
        self._retire(child)
        child.kill(trace=trace)

    def _retire(self, child: ChildProcess) -> bool:
        """Takes a child out of those that can work; returns whether it waited for work."""
        was_idle = child in self._idle
        if was_idle:
            self._idle.remove(child)
        self._working.discard(child)
        if not self.alive and self._none_since is None:
            self._none_since = time.monotonic()
        return was_idle

    def _fill(self) -> None:
        self._retry = None
        # After a failure one at a time: the next will probably fail, too.
        while (
            not self._closed
            and len(self._all) < self._slots + 1
            and not (self._failures and self._starting)
        ):
            try:
                child = ChildProcess(self._spec, on_frame=self._frame, on_exit=self._exited)
            except Exception as error:  # noqa: BLE001 - whatever it is, another try must follow
                self._failed(f"a child process cannot be started: {error}.")
                return
            self._all.add(child)
            self._starting[child] = asyncio.get_running_loop().create_task(self._watch_start(child))

    def _fill_later(self) -> None:
        if self._retry is None and not self._closed:
            delay = self._backoff_s() if self._failures else 0.0
            self._retry = asyncio.get_running_loop().call_later(delay, self._fill)

    def _backoff_s(self) -> float:
        return min(_MAX_BACKOFF_S, 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS))

    async def _watch_start(self, child: ChildProcess) -> None:
        """Ends a start that takes too long or hangs on a probe row; says what it waits for."""
        begun = told = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            if is_late(child.shared.header, self._probe_limits_s):
                index = child.shared.header[Word.FUNCTION]
                what = f"hung on its probe row for {self._probe_limits_s[index]:g} s"
            elif now - begun > self._start_timeout_s:
                what = f"was not ready within start_timeout_s={self._start_timeout_s:g}"
            else:
                # One speaks for all.
                if now - told >= NOTICE_S and child is next(iter(self._starting)):
                    told = now
                    _logger.info(
                        "children starting wait_s=%.0f ready=%d of=%d: %s",
                        *(now - begun, self.alive, self._slots, self._stage()),
                    )
                continue
            child.given_up = what
            child.kill(trace=True)
            return

    def _stage(self) -> str:
        """What the child that has been starting for longest does."""
        for child in self._starting:
            index, started = (child.shared.header[w] for w in (Word.FUNCTION, Word.STARTED))
            what = "scores the probe row of" if started else "loads"
            return f"it {what} {self._names[index]!r}" if index >= 0 else "it is being started"
        return "none is being started"

    def _frame(self, child: ChildProcess, frame: dict[str, Any]) -> None:
        if frame["type"] == "ready":
            if child.given_up:
                return
            self._end_watch(child)
            if problem := self._changed(frame["code_digests"]):
                self._failed(problem)
                child.kill()
                return
            if self._failures:
                _logger.info("child started after %d failures", self._failures)
            self._failures, self._reason, self._none_since = 0, "", None
            self._idle.append(child)
            self._on_ready(frame)
            if self._ready is not None and not self._ready.done() and self.alive >= self._slots:
                self._ready.set_result(None)
            self._fill_later()
        elif frame["type"] == "failed":
            self._end_watch(child)
            self._failed(frame["message"])
        else:
            self._on_frame(child, frame)

    def _end_watch(self, child: ChildProcess) -> bool:
        """Ends the watch over a start; returns whether the child was starting."""
        watch = self._starting.pop(child, None)
        if watch is not None:
            watch.cancel()
        return watch is not None

    def _changed(self, code_digests: list[str]) -> str:
        """Says whose source is another than the first child's: rewards must not change."""
        self._code_digests = self._code_digests or code_digests
        for fn, new, old in zip(
            self._spec.rewards.functions, code_digests, self._code_digests, strict=True
        ):
            if new != old:
                return (
                    f"reward function {fn.name!r} cannot be loaded again: the source of {fn.fn} has"
                    " changed since the start. Restart this process, or put the old file back."
                )
        return ""

    def _failed(self, message: str) -> None:
        if self._closed or self._ready is None:
            return
        self._reason = message
        if not self._ready.done():
            self._ready.set_exception(StartError(message))
        # Those that were started at the same time fail together, and count once.
        elif self._retry is None and self._ready.exception() is None:
            self._failures += 1
            _logger.error(
                "child failed to start, next try in %.0f s alive=%d of=%d failures=%d: %s",
                *(self._backoff_s(), self.alive, self._slots, self._failures, message),
            )
            self._fill_later()

    def _exited(self, child: ChildProcess) -> None:
        self._all.discard(child)
        was_idle = self._retire(child)
        if self._end_watch(child):
            self._failed(self._start_problem(child))
        elif was_idle:
            # Out of memory, say. No reason to stop, but one to go slowly.
            self._failures += 1
            self._idle_losses += 1
            self._reason = f"a child that had no work {child.exit_text}."
            _logger.warning("child lost child_pid=%d: %s", child.pid, self._reason)
            if not self.started and self._idle_losses > self._slots:
                self._failed(f"children do not last: {self._reason}")
        self._on_exit(child)
        self._fill_later()

    def _start_problem(self, child: ChildProcess) -> str:
        index, started = (child.shared.header[w] for w in (Word.FUNCTION, Word.STARTED))
        if index < 0:
            how = child.given_up or child.exit_text
            return f"a child process cannot be started: it {how}; see its error output."
        name = f"reward function {self._names[index]!r}"
        if child.given_up and started:
            return (
                f"{name} {child.given_up}{child.line}. What it needs once should be loaded with"
                " its file; else raise `timeout_s`."
            )
        if child.given_up:
            return f"{name} cannot be loaded: its process {child.given_up}{child.line}."
        if started:
            return f"{name} crashed on its probe row: its process {child.exit_text}."
        return f"{name} cannot be loaded: its process {child.exit_text}; see its error output."
