# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The pool: scores batches in child processes, whatever the reward functions do.

Here which child gets which rows. That there are children is the business of
`reward_server.children`, that they keep their limits of `reward_server.watch`, and which row a dead
one is laid to of `reward_server.blame`.
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

from reward_server import fn_digest
from reward_server.batch import (
    MAX_GROUP_ROWS,
    Deadline,
    RewardFnInfo,
    RowError,
    RowStatus,
    WorkersUnavailable,
)
from reward_server.blame import bury
from reward_server.calls import Call, Chunk
from reward_server.child_process import ChildSpec
from reward_server.children import Children
from reward_server.chunk_size import MAX_CHUNK, ChunkSize
from reward_server.config import PoolConfig
from reward_server.loaded import Loaded
from reward_server.shared_memory import Word
from reward_server.skipped import fail_skipped
from reward_server.turns import Turns
from reward_server.watch import BEAT_SLACK_S, Watch

if TYPE_CHECKING:
    from reward_server.batch import Batch, Scores
    from reward_server.child_process import ChildProcess
    from reward_server.config import RewardsConfig

_TICK_S = 0.05
_MEMORY_TICKS = 10
_STEAL_AFTER_NS = 50_000_000
_REPORT_S = 10.0
_REPORT_ROWS = 8
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
        probes: which functions score a probe row at the start, see `ChildSpec`.
        show_output: whether what functions print is shown on standard error.

    Attributes:
        loaded: what is known of the functions once a child has imported them.

    Example:
        `pool = Pool(RewardsConfig.load("rewards.toml"), "tokenizer/", PoolConfig(slots=2))`, then
        `await pool.start()`, `await pool.score(batch, timeout_s=60)`, `await pool.close()`.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        tokenizer_path: str | os.PathLike[str] | None,
        config: PoolConfig | None = None,
        *,
        probes: str = "all",
        show_output: bool = False,
    ) -> None:
        self.loaded: tuple[Loaded, ...] = ()
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
            probes=probes,
            show_output=show_output,
        )
        self._reward_fns = tuple(
            RewardFnInfo(
                name=f.name,
                weight=f.weight,
                timeout_s=f.timeout_s,
                whole_groups=f.per == "group",
                settings=fn_digest.settings(f, rewards.route_column),
            )
            for f in self._rewards
        )
        self._reward_fns_digest = ""
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
        self._watch = Watch(
            self._children,
            self._busy,
            limits_s=[f.timeout_s for f in self._rewards],
            max_rss_bytes=self._config.max_child_rss_bytes,
        )
        self._chunk_ids = 0
        self._chunk_size = ChunkSize()
        self._monitor: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def reward_fns(self) -> tuple[RewardFnInfo, ...]:
        """Functions in the order of the reward matrix; required columns once started."""
        return self._reward_fns

    @property
    def reward_fns_digest(self) -> str:
        """Hash of what decides their rewards; once started."""
        return self._reward_fns_digest

    @property
    def slots(self) -> int:
        """Rows that can be scored at the same time; fewer while children can't be started."""
        return self._children.slots

    @property
    def problem(self) -> str:
        """Why no row can be scored now, or ""."""
        return self._children.problem

    @property
    def children(self) -> dict[str, int]:
        """Children by what they do."""
        busy = self._children.alive - self._children.idle
        return {"idle": self._children.idle, "busy": busy, "starting": self._children.starting}

    @property
    def rows_per_slot(self) -> int:
        """Rows that a child works on side by side: 1 unless functions are async; once started."""
        return 1 if self._async_limit_s is None else self._config.max_async_rows

    @property
    def workers(self) -> int:
        """0: a pool has no remote workers."""
        return 0

    @property
    def unusable_workers(self) -> dict[str, str]:
        """None: as above."""
        return {}

    @property
    def rows_missing(self) -> int:
        """Rows of the calls under way that have no result yet."""
        return sum(call.missing for call in self._calls)

    @property
    def rows_done(self) -> int:
        """Rows of those calls that have one."""
        return sum(call.batch.rows - call.missing for call in self._calls)

    @property
    def rows_failed(self) -> int:
        """Those of them without a reward."""
        return sum(call.failed for call in self._calls)

    @property
    def rows_queued(self) -> int:
        """Rows of those calls that no child has."""
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

    async def score(
        self, batch: Batch, *, timeout_s: float | Deadline, partial: bool = False
    ) -> Scores:
        """Scores every row of a batch.

        Args:
            batch: the rows.
            timeout_s: seconds the caller still waits for, or a deadline that may be put off.
            partial: return what there is in place of an error, see `Scores.unfinished`.

        Raises:
            TimeoutError: the time ran out; rows not started are dropped.
            WorkersUnavailable: the pool is closed, or its children can't be started.
        """
        if self._closed or not self._children.started:
            raise WorkersUnavailable("The pool is not running.")
        call = Call(batch, functions=len(self._rewards), columns=self._columns)
        if not batch.rows:
            return call.scores()
        self._calls.add(call)
        self._queue.append(call)
        if self._monitor is None:
            self._monitor = asyncio.get_running_loop().create_task(self._keep_watch())
        self._dispatch()
        deadline = Deadline.of(timeout_s)
        try:
            while not call.done.done() and (left_s := deadline.left_s()) > 0:
                await asyncio.wait([call.done], timeout=left_s)
            if call.done.done():
                return call.done.result()
            seconds = f"{round(deadline.timeout_s, 2):g} s"
            message = f"{call.missing} of {batch.rows} rows had no reward after {seconds}."
            if partial:
                return self._so_far(call, message)
            raise TimeoutError(message)
        except WorkersUnavailable as error:
            if partial:
                return self._so_far(call, str(error))
            raise
        finally:
            call.done.cancel()
            self._drop(call)

    def _drop(self, call: Call) -> None:
        """Forgets a call; children stop after the rows that they are at."""
        call.drop()
        self._queue.discard(call)
        self._calls.discard(call)
        for child, chunk in self._busy.items():
            if chunk.call is call:
                child.shared.header[Word.STOP_AT] = 0

    def end_calls(self, reason: str) -> None:
        """Ends the calls under way, as if no child were left."""
        for call in self._calls:
            if not call.done.done():
                call.done.set_exception(WorkersUnavailable(reason))

    def _so_far(self, call: Call, reason: str) -> Scores:
        for chunk in self._busy.values():
            if chunk.call is call:
                call.store(chunk)
        scores = fail_skipped(call.scores(), self._rewards)
        return dataclasses.replace(scores, unfinished=reason)

    async def close(self) -> None:
        """Kills every child with all of its processes and returns when they are gone."""
        self._closed = True
        if self._monitor is not None:
            self._monitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._monitor
        children = await self._children.close()
        self.end_calls("The pool was closed.")
        _logger.info("pool stopped children=%d", children)

    # What children say.

    def _on_frame(self, child: ChildProcess, frame: dict[str, Any]) -> None:
        chunk, kind = self._busy.get(child), frame["type"]
        if chunk is None or chunk.id != frame["id"]:
            return
        if kind in ("error", "unweighted_error"):
            error = RowError(
                row=frame["row"],
                reward_fn=self._rewards[frame["function"]].name,
                status=RowStatus(frame["status"]),
                message=frame["message"],
            )
            (chunk.errors if kind == "error" else chunk.unweighted_errors).append(error)
        elif kind == "extras":
            for name, values in frame["extras"].items():
                chunk.extras.setdefault(name, []).extend(values)
        elif chunk.killed is None:
            self._on_done(child, chunk)

    def _on_ready(self, frame: dict[str, Any]) -> None:
        self.loaded = tuple(map(Loaded.from_json, frame["loaded"]))
        self._reward_fns = tuple(
            dataclasses.replace(
                info,
                required_columns=tuple(required),
                columns=None if columns is None else tuple(columns),
                code_digest=code,
            )
            for info, required, columns, code in zip(
                self._reward_fns,
                frame["required_columns"],
                frame["columns_by_function"],
                frame["code_digests"],
                strict=True,
            )
        )
        self._reward_fns_digest = fn_digest.of_functions(self._reward_fns)
        limits = [
            f.timeout_s
            for f, is_async in zip(self._rewards, frame["async"], strict=True)
            if is_async
        ]
        self._async_limit_s = max(limits) + BEAT_SLACK_S if limits else None
        self._watch.beat_limit_s = self._async_limit_s
        self._columns = None if frame["columns"] is None else set(frame["columns"])
        self._dispatch()

    def _on_done(self, child: ChildProcess, chunk: Chunk) -> None:
        del self._busy[child]
        count = chunk.end - chunk.start
        child.rows += count
        if not chunk.call.dropped:
            self._chunk_size.observe(count, time.monotonic() - chunk.sent)
            chunk.call.store(chunk)
            self._finish(chunk.call)
        self._children.give_back(child, recycle=child.rows >= self._config.rows_per_child)
        self._dispatch()

    def _on_exit(self, child: ChildProcess) -> None:
        if (chunk := self._busy.pop(child, None)) is not None and not self._closed:
            self._put_back(chunk.call, bury(chunk, [f.name for f in self._rewards]))
            self._finish(chunk.call)
        self._dispatch()

    # Rows: which go where, and what becomes of those of a dead child.

    def _dispatch(self) -> None:
        while len(self._busy) < self._config.slots and not self._closed:
            call = self._queue.take()
            child = self._children.take() if call is not None else None
            if call is None or child is None:
                return
            start, end = call.take(self._chunk_rows())
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
            free = max(1, self._config.slots - len(self._busy))
            return min(self._config.max_async_rows, math.ceil(queued / free))
        return self._chunk_size.rows(queued, max(1, self.slots))

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
            if chunk.call.dropped:
                continue
            if not self._children.idle or len(self._busy) >= self._config.slots:
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
            call.done.set_result(fail_skipped(call.scores(), self._rewards))

    # The watch: runs while there is work.

    async def _keep_watch(self) -> None:
        tick = 0
        while self._busy or self._queue:
            await asyncio.sleep(_TICK_S)
            tick += 1
            try:
                self._watch.tick(memory=tick % _MEMORY_TICKS == 0)
                self._steal()
                self._give_up()
                self._report()
            except Exception:  # the watch must go on, or rows would hang
                _logger.exception("tick failed")
        self._monitor = None

    def _give_up(self) -> None:
        """Ends all calls, to be sent elsewhere or again, when no child has worked for too long."""
        problem = self._children.problem
        if problem and self._children.outage_s >= self._config.outage_s:
            for call in self._calls:
                if not call.done.done():
                    call.done.set_exception(
                        WorkersUnavailable(f"no child process can score rows: {problem}")
                    )

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
                "call waiting wait_s=%.0f rows=%d missing=%d queued=%d running_row_ids=%s"
                " children=%d%s",
                now - call.arrived,
                call.batch.rows,
                call.missing,
                call.queued,
                running[:_REPORT_ROWS],
                self._children.alive,
                f" problem={self._children.problem}" if self._children.problem else "",
            )
