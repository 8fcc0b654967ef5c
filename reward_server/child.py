# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The child process: decodes chunks of rows and runs the reward functions on them.

Forked by `reward_server.supervisor`. Functions run in the main thread, row by row; a row's results
are in shared memory as soon as it is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import faulthandler
import io
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from reward_server import config, decode, frames, registry
from reward_server.batch import RowStatus
from reward_server.child_rows import ChunkRows
from reward_server.reward_fns import guard
from reward_server.routes import Routes
from reward_server.shared_memory import Clock, Shared, Word
from reward_server.trace import SIGNAL
from reward_server.user_errors import MAX_MESSAGE, describe, explain, explain_probe, status_of

_BEAT_S = 0.05
_OK = int(RowStatus.OK)
_PR_SET_PDEATHSIG = 1
# A reward, or why there is none.
_Outcome = float | tuple[RowStatus, str]


class Child:
    """Serves one parent until the socket closes.

    Args:
        sock: socket to the parent.
        fd: descriptor of the shared memory.
    """

    def __init__(self, sock: socket.socket, fd: int) -> None:
        self._sock = sock
        start, _ = self._receive()
        entries = [_entry(values) for values in start["rewards"]]
        self._shared = Shared(fd, rows=start["max_rows"], functions=len(entries))
        self._clock = Clock(self._shared.header)
        _trace_into(fd, self._shared.trace_at)
        self._max_async_rows: int = start["max_async_rows"]
        self._pid = os.getpid()
        _limit_data(start["max_data_bytes"])
        self._tokenizer_path: str | None = start["tokenizer"]
        self._tokenizer: decode.Tokenizer | None = None
        self._entries = entries
        self._route_column: str = start["route_column"]
        self._probes: str = start["probes"]
        if start["show_output"]:
            _show_output()
        self._functions: list[registry.RewardFn] = []
        guard.install()
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self) -> bool:
        """Loads tokenizer and functions, scores the probe rows and reports to the parent."""
        try:
            if self._tokenizer_path is not None:
                self._tokenizer = decode.Tokenizer.load(self._tokenizer_path)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            self._send({"type": "failed", "message": str(error)})
            return False
        for index, entry in enumerate(self._entries):
            self._shared.header[Word.FUNCTION] = index
            try:
                function = registry.load(entry)
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                where = entry.fn.rpartition(":")[0]
                message = (
                    f"reward function {entry.name!r} cannot be loaded from {entry.fn}:"
                    f" {describe(error, where)}."
                )
                self._send({"type": "failed", "message": message})
                return False
            self._functions.append(function)
            wanted = self._probes == "all" or (self._probes == "written" and function.has_probe)
            if wanted and (problem := self._probe(index, function)):
                self._send({"type": "failed", "message": problem})
                return False
        numbered = list(enumerate(self._functions))
        self._group = [(i, f) for i, f in numbered if f.config.per == "group"]
        self._sync = [(i, f) for i, f in numbered if (i, f) not in self._group and not f.is_async]
        self._async = [(i, f) for i, f in numbered if f.is_async]
        route = {self._route_column} - {""}
        taken = [
            None
            if f.columns is None
            else sorted({*f.columns, *(route if f.config.sources else ())})
            for f in self._functions
        ]
        columns = None if None in taken else sorted(route.union(*(names or () for names in taken)))
        self._routes = Routes(self._route_column, [f.config for f in self._functions])
        self._send(
            {
                "type": "ready",
                "required_columns": [
                    sorted({*f.required_columns, *(route if f.config.sources else ())})
                    for f in self._functions
                ],
                "async": [f.is_async for f in self._functions],
                "code_digests": [f.code_digest for f in self._functions],
                "columns": columns,
                "columns_by_function": taken,
                "loaded": [dataclasses.asdict(f.loaded) for f in self._functions],
            }
        )
        return True

    def serve(self) -> None:
        """Scores chunks until the parent closes the socket."""
        while True:
            try:
                header, binary = self._receive()
            except EOFError:
                return
            rows = ChunkRows(header, binary)
            self._score(rows)
            self._send_extras(rows)
            self._send({"type": "done", "id": rows.id})

    def _probe(self, index: int, function: registry.RewardFn) -> str | None:
        with self._clock(index):
            return self._try(function)

    def _try(self, function: registry.RewardFn) -> str | None:
        """Scores a function's probe row or group; returns what is wrong with it, or None."""
        try:
            arguments, rows = function.probe_arguments()
            result = function.bare(**arguments)
            if function.is_async:
                result = self._event_loop().run_until_complete(
                    asyncio.wait_for(result, function.config.timeout_s)
                )
            function.check_probe(result, rows)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            return explain_probe(error, function)
        return None

    def _score(self, rows: ChunkRows) -> None:
        header = self._shared.header
        start = time.monotonic_ns()
        try:
            for function in self._functions:
                rows.decode(
                    self._tokenizer, skip_special_tokens=function.config.skip_special_tokens
                )
        except BaseException as error:  # noqa: BLE001 - the library's panics are BaseException
            message = f"cannot be decoded: {describe(error)}"
            for row in range(rows.count):
                self._report(rows, row, 0, RowStatus.ERROR, message)
                self._shared.statuses_flat[row] = RowStatus.ERROR
            return
        first = time.monotonic_ns()
        header[Word.DECODE] = first - start
        header[Word.FIRST_STARTED] = first
        for row in self._routes.unknown(rows.columns):
            self._fail_all(rows, row, self._routes.problem(rows.columns, row))
        if self._group:
            self._score_groups(rows)
        if self._async:
            header[Word.FUNCTION] = self._async[0][0]
            header[Word.BEAT] = first
            self._event_loop().run_until_complete(self._score_async(rows))
            header[Word.BEAT] = 0
            self._send_extras(rows)
        if self._async or self._group:
            header[Word.JUDGED] = 1
        if self._sync or not self._async:
            self._score_sync(rows)

    def _score_sync(self, rows: ChunkRows) -> None:
        header, statuses = self._shared.header, self._shared.statuses_flat
        for row in range(rows.count):
            header[Word.ROW] = row
            if row >= header[Word.STOP_AT]:
                break
            header[Word.ROW_STARTED] = time.monotonic_ns()
            for index, function in self._sync:
                if self._routes.sends(rows.columns, row, index):
                    self._run(rows, row, index, function)
            if rows.extras:
                self._send_extras(rows)
            statuses[row] = rows.failed.get(row, _OK)
        header[Word.ROW] = -1

    def _score_groups(self, rows: ChunkRows) -> None:
        """Runs the functions that see whole groups, under one clock for each group."""
        header = self._shared.header
        for start, end in rows.groups:
            if start >= header[Word.STOP_AT]:
                break
            if start in rows.judged:
                continue
            header[Word.ROWS] = end - start
            header[Word.ROW] = start
            for index, function in self._group:
                if self._routes.sends(rows.columns, start, index):
                    self._run_group(rows, start, end, index, function)
        header[Word.ROW] = -1
        header[Word.ROWS] = 0

    def _run_group(
        self, rows: ChunkRows, start: int, end: int, index: int, function: registry.RewardFn
    ) -> None:
        with self._clock(index):
            results = self._group_outcomes(rows, start, end, function)
        for row, result in enumerate(results, start):
            self._take(rows, row, index, result)
        self._shared.score_ns[index] += self._clock.took_ns
        for row in range(start, end):
            self._shared.row_ns_flat[row] += self._clock.took_ns // (end - start)

    def _group_outcomes(
        self, rows: ChunkRows, start: int, end: int, function: registry.RewardFn
    ) -> list[_Outcome]:
        try:
            arguments = rows.group_arguments(function, start, end)
            result = function.call(**arguments)
            self._end_copy()
            values = function.values(result, end - start)
            return [
                _failure(value, function) if isinstance(value, BaseException) else value
                for value in values
            ]
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            self._end_copy()
            return [_failure(error, function)] * (end - start)

    def _end_copy(self) -> None:
        # A function forked and comes back twice: only one may go on here.
        if os.getpid() != self._pid:
            os._exit(0)

    def _run(self, rows: ChunkRows, row: int, index: int, function: registry.RewardFn) -> None:
        """Scores a row with one function."""
        with self._clock(index):
            outcome = self._outcome(rows, row, function)
        self._take(rows, row, index, outcome)
        self._shared.score_ns[index] += self._clock.took_ns
        self._shared.row_ns_flat[row] += self._clock.took_ns

    def _outcome(self, rows: ChunkRows, row: int, function: registry.RewardFn) -> _Outcome:
        # What the function made is gone when this returns: `__del__` runs under the clock, too.
        try:
            arguments = rows.arguments(function, row)
            result = function.call(**arguments)
            self._end_copy()
            return function.value(result)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            self._end_copy()
            return _failure(error, function)

    def _take(self, rows: ChunkRows, row: int, index: int, outcome: _Outcome) -> None:
        if isinstance(outcome, float):
            self._shared.rewards_flat[row * len(self._functions) + index] = outcome
        else:
            self._fail(rows, row, index, *outcome)

    async def _score_async(self, rows: ChunkRows) -> None:
        limit = asyncio.Semaphore(self._max_async_rows)
        work = asyncio.gather(
            *(
                self._row_async(rows, row, limit)
                for row in range(rows.count)
                if row not in rows.judged
            )
        )
        beat = asyncio.create_task(self._beat(work))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await work
        finally:
            beat.cancel()

    async def _beat(self, work: asyncio.Future[list[None]]) -> None:
        """Tells the parent that the event loop goes on; ends the work if nobody wants it."""
        header = self._shared.header
        while True:
            header[Word.BEAT] = time.monotonic_ns()
            if not header[Word.STOP_AT]:
                work.cancel()
            await asyncio.sleep(_BEAT_S)

    async def _row_async(self, rows: ChunkRows, row: int, limit: asyncio.Semaphore) -> None:
        async with limit:
            await asyncio.gather(
                *(
                    self._run_async(rows, row, index, function)
                    for index, function in self._async
                    if self._routes.sends(rows.columns, row, index)
                )
            )
        if not self._sync:
            self._send_extras(rows)
            self._shared.statuses_flat[row] = rows.failed.get(row, RowStatus.OK)

    async def _run_async(
        self, rows: ChunkRows, row: int, index: int, function: registry.RewardFn
    ) -> None:
        started = time.monotonic_ns()
        task = asyncio.create_task(self._outcome_async(function, rows, row))
        try:
            # Not asyncio.timeout: a function that swallows its cancellation must not hold the row.
            done, _ = await asyncio.wait([task], timeout=function.config.timeout_s)
        finally:
            task.cancel()  # late, or not wanted any more
        if done:
            self._take(rows, row, index, task.result())
        else:
            message = f"ran longer than {function.config.timeout_s:g} s"
            self._fail(rows, row, index, RowStatus.TIMEOUT, message)
        took = time.monotonic_ns() - started
        self._shared.score_ns[index] += took
        # Functions of a row run side by side.
        self._shared.row_ns_flat[row] = max(took, self._shared.row_ns_flat[row])

    async def _outcome_async(
        self, function: registry.RewardFn, rows: ChunkRows, row: int
    ) -> _Outcome:
        """Returns what was raised, in words: SystemExit in a task would stop the event loop."""
        try:
            result = await function.call(**rows.arguments(function, row))
            self._end_copy()
            return function.value(result)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            self._end_copy()
            return _failure(error, function)

    def _fail_all(self, rows: ChunkRows, row: int, message: str) -> None:
        rows.failed[row] = RowStatus.ERROR
        self._report(rows, row, 0, RowStatus.ERROR, message)

    def _fail(self, rows: ChunkRows, row: int, index: int, status: RowStatus, message: str) -> None:
        # A function that is only reported may fail.
        if not self._functions[index].config.weight:
            self._report(rows, row, index, status, message, kind="unweighted_error")
        elif row not in rows.failed:
            rows.failed[row] = status
            self._report(rows, row, index, status, message)

    def _report(
        self,
        rows: ChunkRows,
        row: int,
        index: int,
        status: RowStatus,
        message: str,
        *,
        kind: str = "error",
    ) -> None:
        # Sent at once: a later row may take the process down.
        self._send(
            {
                "type": kind,
                "id": rows.id,
                "row": row,
                "function": index,
                "status": int(status),
                "message": message[:MAX_MESSAGE],
            }
        )

    def _send_extras(self, rows: ChunkRows) -> None:
        # At once, as above: what finished rows have reported outlives the process.
        if rows.extras:
            self._send({"type": "extras", "id": rows.id, "extras": rows.extras})
            rows.extras = {}

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def _send(self, header: dict[str, Any]) -> None:
        try:
            for part in frames.encode(header):
                self._sock.sendall(part)
        except OSError:
            # A function closed the socket: the row at hand, which can't be reported, is not to
            # blame for that.
            self._shared.header[Word.ROW] = -1
            os._exit(1)

    def _receive(self) -> tuple[dict[str, Any], bytes]:
        return frames.decode(self._read)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._sock.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return data


def _entry(values: dict[str, Any]) -> config.RewardFnConfig:
    probe = values.pop("probe")
    values["sources"] = tuple(values["sources"])
    return config.RewardFnConfig(**values, probe=config.Probe(**probe) if probe else None)


def _failure(error: BaseException, function: registry.RewardFn) -> tuple[RowStatus, str]:
    """Status and message of a row; runs `__str__` of a user's exception."""
    return status_of(error), explain(error, function)


def _trace_into(fd: int, offset: int) -> None:
    """Lets the process say where it is when it crashes, or is about to be killed."""
    os.lseek(fd, offset, os.SEEK_SET)
    faulthandler.enable(fd, all_threads=False)
    faulthandler.register(SIGNAL, fd, all_threads=False, chain=False)


def _show_output() -> None:
    """Sends what functions print where their errors go, line by line."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")


def _limit_data(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def run(sock_fd: int, memory_fd: int, *, parent: int) -> NoReturn:
    """Runs the child and ends the process.

    Args:
        sock_fd: descriptor of the socket to the server.
        memory_fd: descriptor of the shared memory.
        parent: process id of the supervisor.
    """
    for fd in (sock_fd, memory_fd):
        os.set_inheritable(fd, False)  # grandchildren get neither
    # Dies with its parent, even in a function that hangs in C.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # When memory runs out, the kernel takes a child and not the server.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        child = Child(socket.socket(fileno=sock_fd), memory_fd)
        if child.load():
            child.serve()
    except BaseException:  # noqa: BLE001 - a bug here, or what user code left behind
        traceback.print_exc()
        os._exit(1)
    # Threads and exit handlers of user code must not keep the process.
    os._exit(0)
