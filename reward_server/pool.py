# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The pool: scores batches in child processes, whatever the reward functions do.

Here which child gets which rows, the clock of every row, and what a dead child means; that there
are children is the business of `reward_server.children`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import time
from typing import TYPE_CHECKING, Any

from reward_server.batch import (
    MAX_GROUP_ROWS,
    RewardFnInfo,
    RowError,
    RowStatus,
    WorkersUnavailable,
)
from reward_server.calls import Call, Chunk, ranges_of
from reward_server.child_process import ChildSpec
from reward_server.children import Children
from reward_server.chunk_size import MAX_CHUNK, ChunkSize
from reward_server.config import PoolConfig
from reward_server.frames import Word
from reward_server.turns import Turns

if TYPE_CHECKING:
    from reward_server.batch import Batch, Scores
    from reward_server.child_process import ChildProcess
    from reward_server.config import RewardsConfig

_TICK_S = 0.05
_MEMORY_TICKS = 10
_STEAL_AFTER_NS = 50_000_000
_REPORT_S = 10.0
_LOSSES_TO_BLAME = 3
_REPORT_ROWS = 8
# Beats come every 50 ms; a machine under load may delay one.
_BEAT_SLACK_S = 0.25
# Memory is looked at twice a second, and a function can take a lot in between: what a process may
# ask for is limited, too. Reserved memory and stacks of threads count there, used or not.
_DATA_FACTOR = 4

_logger = logging.getLogger(__name__)


class Pool:
    """Runs reward functions in killable child processes; a `reward_server.batch.Scorer`.

    Args:
        rewards: the functions.
        tokenizer_path: a `tokenizer.json` or its folder; None if all rows come as text.
        config: limits.

    Example:
        `pool = Pool(RewardsConfig.load("rewards.toml"), "tokenizer/", PoolConfig(slots=2))`, then
        `await pool.start()`, `await pool.score(batch, timeout_s=60)`, `await pool.close()`.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        tokenizer_path: str | os.PathLike[str] | None,
        config: PoolConfig | None = None,
    ) -> None:
        self._config = config or PoolConfig()
        self._rewards = rewards.functions
        self._whole_groups = any(f.per == "group" for f in rewards.functions)
        spec = ChildSpec(
            rewards=rewards,
            tokenizer_path=None if tokenizer_path is None else os.fspath(tokenizer_path),
            # A chunk ends with a whole group.
            max_rows=max(MAX_CHUNK, self._config.max_async_rows) + MAX_GROUP_ROWS,
            max_async_rows=self._config.max_async_rows,
            max_data_bytes=_DATA_FACTOR * self._config.max_child_rss_bytes,
        )
        self._reward_fns = tuple(
            RewardFnInfo(
                name=f.name,
                weight=f.weight,
                timeout_s=f.timeout_s,
                settings_digest=f.settings_digest,
                whole_groups=f.per == "group",
            )
            for f in self._rewards
        )
        self._columns: set[str] | None = None
        self._async_limit_s: float | None = None
        self._queue: Turns[Call] = Turns()
        self._calls: set[Call] = set()
        self._children = Children(
            spec,
            slots=self._config.slots,
            start_timeout_s=self._config.start_timeout_s,
            on_ready=self._on_ready,
            on_frame=self._on_frame,
            on_exit=self._on_exit,
        )
        self._busy: dict[ChildProcess, Chunk] = {}
        self._chunk_ids = 0
        self._chunk_size = ChunkSize()
        self._monitor: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def reward_fns(self) -> tuple[RewardFnInfo, ...]:
        """Functions in the order of the reward matrix; required columns once started."""
        return self._reward_fns

    @property
    def slots(self) -> int:
        """Rows that can be scored at the same time."""
        return self._config.slots

    @property
    def rows_per_slot(self) -> int:
        """Rows that a child works on side by side: 1 unless functions are async; once started."""
        return 1 if self._async_limit_s is None else self._config.max_async_rows

    @property
    def workers(self) -> int:
        """0: a pool has no remote workers."""
        return 0

    @property
    def rows_missing(self) -> int:
        """Rows of the calls under way that have no result yet."""
        return sum(call.missing for call in self._calls)

    @property
    def rows_queued(self) -> int:
        """Those of them that no child has."""
        return sum(call.queued for call in self._calls)

    async def start(self) -> None:
        """Starts the children, and returns once they have scored the probe rows.

        Raises:
            StartError: names the function and what it did wrong.
        """
        started = time.monotonic()
        try:
            await self._children.start()
        except BaseException:
            await self.close()
            raise
        _logger.info(
            "pool ready slots=%d reward_fns=%s start_s=%.1f",
            self.slots,
            ",".join(f.name for f in self._rewards),
            time.monotonic() - started,
        )

    async def score(self, batch: Batch, *, timeout_s: float) -> Scores:
        """Scores every row of a batch.

        Args:
            batch: the rows.
            timeout_s: seconds the caller still waits for.

        Raises:
            TimeoutError: the time ran out; rows not started are dropped.
            WorkersUnavailable: the pool is closed.
        """
        if self._closed or not self._children.started:
            raise WorkersUnavailable("The pool is not running.")
        call = Call(batch, functions=len(self._rewards), columns=self._columns)
        if not batch.rows:
            return call.scores()
        self._calls.add(call)
        self._queue.append(call)
        if self._monitor is None:
            self._monitor = asyncio.get_running_loop().create_task(self._watch())
        self._dispatch()
        try:
            async with asyncio.timeout(timeout_s):
                return await call.done
        except TimeoutError:
            message = f"{call.missing} of {batch.rows} rows had no reward after {timeout_s:g} s."
            raise TimeoutError(message) from None
        finally:
            call.drop()
            self._queue.discard(call)
            self._calls.discard(call)

    async def close(self) -> None:
        """Kills every child with all of its processes and returns when they are gone."""
        self._closed = True
        if self._monitor is not None:
            self._monitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._monitor
        children = await self._children.close()
        for call in self._calls:
            if not call.done.done():
                call.done.set_exception(WorkersUnavailable("The pool was closed."))
        _logger.info("pool stopped children=%d", children)

    # What children say.

    def _on_frame(self, child: ChildProcess, frame: dict[str, Any]) -> None:
        chunk, kind = self._busy.get(child), frame["type"]
        if chunk is None or chunk.id != frame["id"]:
            return
        if kind == "error":
            error = RowError(
                row=frame["row"],
                reward_fn=self._rewards[frame["function"]].name,
                status=RowStatus(frame["status"]),
                message=frame["message"],
            )
            chunk.errors.append(error)
        elif kind == "extras":
            for name, values in frame["extras"].items():
                chunk.extras.setdefault(name, []).extend(values)
        elif chunk.killed is None:
            self._on_done(child, chunk)

    def _on_ready(self, frame: dict[str, Any]) -> None:
        self._reward_fns = tuple(
            dataclasses.replace(info, required_columns=tuple(columns))
            for info, columns in zip(self._reward_fns, frame["required_columns"], strict=True)
        )
        limits = [
            f.timeout_s
            for f, is_async in zip(self._rewards, frame["async"], strict=True)
            if is_async
        ]
        self._async_limit_s = max(limits) + _BEAT_SLACK_S if limits else None
        self._columns = None if frame["columns"] is None else set(frame["columns"])
        self._dispatch()

    def _on_done(self, child: ChildProcess, chunk: Chunk) -> None:
        del self._busy[child]
        count = chunk.end - chunk.start
        child.rows += count
        self._chunk_size.observe(count, time.monotonic() - chunk.sent)
        chunk.call.store(chunk)
        self._finish(chunk.call)
        self._children.give_back(child, recycle=child.rows >= self._config.rows_per_child)
        self._dispatch()

    def _on_exit(self, child: ChildProcess) -> None:
        if (chunk := self._busy.pop(child, None)) is not None and not self._closed:
            self._bury(chunk)
        self._dispatch()

    # Rows: which go where, and what becomes of those of a dead child.

    def _dispatch(self) -> None:
        idle = self._children.idle
        while idle and len(self._busy) < self.slots and not self._closed:
            call = self._queue.take()
            if call is None:
                return
            start, end = call.take(self._chunk_rows())
            child = idle.pop()
            self._chunk_ids += 1
            chunk = Chunk(
                id=self._chunk_ids,
                call=call,
                child=child,
                start=start,
                end=end,
                sent=time.monotonic(),
            )
            self._busy[child] = chunk
            child.shared.clear(end - start)
            header, binary = call.message(start, end)
            header["id"] = chunk.id
            child.send(header, binary)

    def _chunk_rows(self) -> int:
        queued = self._queue.queued
        if self._async_limit_s is not None:
            # Waiting rows cost nothing: the children that are free share all there are.
            free = max(1, self.slots - len(self._busy))
            return min(self._config.max_async_rows, math.ceil(queued / free))
        return self._chunk_size.rows(queued, self.slots)

    def _steal(self) -> None:
        # Async functions of stolen rows would run twice, and a judge costs money.
        if self._queue.queued or self._async_limit_s is not None:
            return
        if self._whole_groups:
            return
        now = time.monotonic_ns()
        for child, chunk in list(self._busy.items()):
            header = child.shared.header
            row, started = header[Word.ROW], header[Word.ROW_STARTED]
            unstarted = chunk.end - chunk.start - row - 1
            if row < 0 or unstarted < 1 or now - started < _STEAL_AFTER_NS or chunk.killed:
                continue
            if not self._children.idle or len(self._busy) >= self.slots:
                return
            # A row that the child starts in this instant is scored twice and counted once.
            stop = row + 1 + unstarted // 2
            header[Word.STOP_AT] = stop
            stolen = (chunk.start + stop, chunk.end)
            chunk.end = chunk.start + stop
            self._put_back(chunk.call, [stolen])
            self._dispatch()

    def _put_back(self, call: Call, ranges: list[tuple[int, int]]) -> None:
        if call.dropped or not ranges:
            return
        call.put_back(ranges)
        self._queue.appendleft(call)

    def _finish(self, call: Call) -> None:
        if not call.missing and not call.done.done():
            call.done.set_result(call.scores())

    def _is_to_blame(self, chunk: Chunk, row: int) -> bool:
        """Whether a row that was alone in a chunk killed its child.

        A child may have died before it read the chunk, so a row is blamed only when that would
        have to have happened again and again.
        """
        if chunk.killed is not None:
            return True
        chunk.call.losses[chunk.start + row] += 1
        return chunk.call.losses[chunk.start + row] >= _LOSSES_TO_BLAME

    def _bury(self, chunk: Chunk) -> None:
        """Takes the finished rows of a dead child, blames one row and sends the rest again."""
        call, header = chunk.call, chunk.child.shared.header
        call.store(chunk)
        rows = chunk.unfinished()
        at = header[Word.ROW]
        if at < 0 and len(rows) == 1 and self._is_to_blame(chunk, rows[0]):
            at = rows[0]
        status, message = chunk.killed or (
            RowStatus.CRASHED,
            f"its process {chunk.child.exit_text}",
        )
        innocent = chunk.killed is not None and chunk.suspect >= 0 and chunk.suspect != at
        blamed = [] if innocent else [r for r in rows if at <= r < at + max(1, header[Word.ROWS])]
        call.keep(chunk, blamed)
        name = self._rewards[header[Word.FUNCTION]].name
        for row in blamed:
            rows.remove(row)
            error = RowError(row=row + chunk.start, reward_fn=name, status=status, message=message)
            call.fail(error)
        ranges = ranges_of([r + chunk.start for r in rows])
        if not blamed and at < 0:
            # Several rows were under way: each again by itself, or with its group, so that the next
            # blame is certain.
            ranges = call.units([r + chunk.start for r in rows])
        _logger.warning(
            "child lost child_pid=%d status=%s rows_again=%d: %s",
            chunk.child.pid,
            status.name,
            len(rows),
            message,
        )
        self._put_back(call, ranges)
        self._finish(call)

    # The clock: runs while there is work.

    async def _watch(self) -> None:
        tick = 0
        while self._busy or self._queue:
            await asyncio.sleep(_TICK_S)
            tick += 1
            try:
                self._tick(memory=tick % _MEMORY_TICKS == 0)
            except Exception:  # the clock must go on, or rows would hang
                _logger.exception("tick failed")
        self._monitor = None

    def _tick(self, *, memory: bool) -> None:
        for child, chunk in list(self._busy.items()):
            self._check_time(child, chunk)
        if memory:
            for child in list(self._children.all):
                self._check_memory(child)
        self._steal()
        self._report()

    def _check_time(self, child: ChildProcess, chunk: Chunk) -> None:
        header = child.shared.header
        row, index, started = header[Word.ROW], header[Word.FUNCTION], header[Word.STARTED]
        beat, now = header[Word.BEAT], time.monotonic_ns()
        if chunk.killed is not None:
            return
        if beat and self._async_limit_s is not None:
            if now - beat > self._async_limit_s * 1e9:
                message = f"blocked the event loop for more than {self._async_limit_s:g} s"
                self._kill(chunk, -1, RowStatus.TIMEOUT, message)
        elif (
            started
            and now - started > self._rewards[index].timeout_s * 1e9
            # Read twice: a function that ended in between is not late.
            and header[Word.STARTED] == started
        ):
            message = f"ran longer than {self._rewards[index].timeout_s:g} s"
            self._kill(chunk, row, RowStatus.TIMEOUT, message)

    def _check_memory(self, child: ChildProcess) -> None:
        limit = self._config.max_child_rss_bytes
        rss = child.rss_bytes(limit)
        if rss <= limit:
            return
        chunk = self._busy.get(child)
        if chunk is None:
            _logger.warning("child replaced child_pid=%d rss_bytes=%d", child.pid, rss)
            child.kill()
        elif chunk.killed is None:
            row = child.shared.header[Word.ROW]
            message = (
                f"its process used {rss} bytes of memory, more than max_child_rss_bytes={limit}"
            )
            self._kill(chunk, row, RowStatus.OOM, message)

    def _kill(self, chunk: Chunk, row: int, status: RowStatus, message: str) -> None:
        chunk.killed = (status, message)
        chunk.suspect = row
        chunk.child.kill()

    def _report(self) -> None:
        now = time.monotonic()
        for call in self._calls:
            if now - call.reported < _REPORT_S:
                continue
            call.reported = now
            running = [
                (call.batch.row_ids[chunk.start + max(0, chunk.child.shared.header[Word.ROW])])
                for chunk in self._busy.values()
                if chunk.call is call and chunk.end > chunk.start
            ]
            _logger.info(
                "call waiting wait_s=%.0f rows=%d missing=%d queued=%d running_row_ids=%s",
                now - call.arrived,
                call.batch.rows,
                call.missing,
                call.queued,
                running[:_REPORT_ROWS],
            )
