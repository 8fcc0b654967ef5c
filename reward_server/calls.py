# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls being scored by a pool, and the chunks of their rows that children work on.

Bookkeeping only; `reward_server.pool` decides which chunk goes where.

Legend: b rows of a call, F reward functions.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from reward_server.batch import RowError, RowStatus, Scores, group_starts
from reward_server.shared_memory import Word

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reward_server.batch import Batch
    from reward_server.child_process import ChildProcess


# A function that makes up names from its data would fill the memory.
_MAX_EXTRA_COLUMNS = 256


class Call:
    """One call: its rows, those not sent yet, and the results so far.

    Args:
        batch: rows to score.
        functions: F.
        columns: columns that functions take, or None for all.
    """

    def __init__(self, batch: Batch, *, functions: int, columns: set[str] | None) -> None:
        self.batch = batch
        self.ranges: collections.deque[tuple[int, int]] = collections.deque([(0, batch.rows)])
        self.queued = batch.rows
        self.missing = batch.rows
        self.dropped = False
        self.losses: collections.Counter[int] = collections.Counter()
        self.arrived = time.monotonic()
        self.reported = self.arrived
        self.done: asyncio.Future[Scores] = asyncio.get_running_loop().create_future()
        self._columns = {k: v for k, v in batch.columns.items() if columns is None or k in columns}
        self._ends = np.concatenate([[0], np.cumsum(batch.completion_lengths, dtype=np.int64)])
        self._prompt_ends = None
        if batch.prompts is None and batch.prompt_lengths is not None:
            self._prompt_ends = np.concatenate([[0], np.cumsum(batch.prompt_lengths)])
        self._rewards = np.full((batch.rows, functions), np.nan)
        self._statuses = np.zeros(batch.rows, np.uint8)
        self._errors: dict[int, RowError] = {}
        # By row and function.
        self._unweighted_errors: dict[tuple[int, str], RowError] = {}
        # Rows whose async functions are through, and those of them that failed there.
        self._judged = np.zeros(batch.rows, np.bool_)
        self._judged_errors: dict[int, RowError] = {}
        self._extras: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
        self._decode_s = 0.0
        self._score_s = np.zeros(functions, np.float64)
        self._row_s = np.zeros(batch.rows, np.float64)
        self._first_started: float | None = None

    @property
    def failed(self) -> int:
        """Rows that have a result, but no reward."""
        return len(self._errors)

    def take(self, rows: int) -> tuple[int, int]:
        """Takes up to so many neighbouring rows off the queue."""
        start, end = self.ranges.popleft()
        if end - start > rows:
            cut = min(end, self.batch.end_of_group(start + rows - 1))
            if cut < end:
                self.ranges.appendleft((cut, end))
            end = cut
        self.queued -= end - start
        return start, end

    def put_back(self, ranges: list[tuple[int, int]]) -> None:
        """Puts rows back, to be taken first."""
        self.ranges.extendleft(reversed(ranges))
        self.queued += sum(end - start for start, end in ranges)

    def units(self, rows: list[int]) -> list[tuple[int, int]]:
        """Ranges of single rows, or of groups where groups stay whole."""
        ranges: list[tuple[int, int]] = []
        for row in rows:
            if not ranges or row >= ranges[-1][1]:
                ranges.append((row, self.batch.end_of_group(row)))
        return ranges

    def drop(self) -> None:
        """Forgets the rows that no child has started."""
        self.dropped = True
        self.ranges.clear()
        self.queued = 0

    def message(self, start: int, end: int) -> tuple[dict[str, Any], list[memoryview]]:
        """Makes the frame that sends rows [start, end) to a child."""
        batch = self.batch
        parts = [
            batch.completion_lengths[start:end].astype(np.int32),
            batch.completion_ids[self._ends[start] : self._ends[end]],
        ]
        if self._prompt_ends is not None and batch.prompt_ids is not None:
            ends = self._prompt_ends
            parts.append(np.diff(ends[start : end + 1]).astype(np.int32))
            parts.append(batch.prompt_ids[ends[start] : ends[end]])
        texts, prefixes = batch.completions, batch.completion_prefixes
        header = {
            "rows": end - start,
            "judged": np.flatnonzero(self._judged[start:end]).tolist(),
            "completions": None if texts is None else texts[start:end],
            "has_ids": texts is None or batch.completion_ids.size > 0,
            "prompts": None if batch.prompts is None else batch.prompts[start:end],
            "prefixes": prefixes[start:end] if prefixes else None,
            "columns": {name: values[start:end] for name, values in self._columns.items()},
            "groups": self._groups(start, end),
            "step": batch.step,
            "mode": batch.mode,
        }
        return header, [np.ascontiguousarray(part, np.int32).view(np.uint8).data for part in parts]

    def _groups(self, start: int, end: int) -> list[tuple[int, int]]:
        """First row and row after the last of each group within [start, end), if they matter."""
        if self.batch.group_ids is None:
            return []
        starts = group_starts(self.batch.group_ids[start:end]).tolist()
        return list(zip(starts, [*starts[1:], end - start], strict=True))

    def store(self, chunk: Chunk) -> None:
        """Takes over what a child left in shared memory for a chunk."""
        count = chunk.end - chunk.start
        shared = chunk.child.shared
        finished = shared.statuses[:count] > 0
        rows = slice(chunk.start, chunk.end)
        self._merge(chunk, finished)
        self._statuses[rows][finished] = shared.statuses[:count][finished]
        self._decode_s += shared.header[Word.DECODE] / 1e9
        self._score_s += np.asarray(shared.score_ns.tolist()) / 1e9
        self._row_s[rows][finished] += shared.row_ns[:count][finished] / 1e9
        if (first := shared.header[Word.FIRST_STARTED]) and self._first_started is None:
            self._first_started = first / 1e9
        for error in chunk.errors:
            row = error.row + chunk.start
            if error.row < count and finished[error.row]:
                self._errors[row] = dataclasses.replace(error, row=row)
        for error in chunk.unweighted_errors:
            if error.row < count:
                row = error.row + chunk.start
                key = (row, error.reward_fn)
                self._unweighted_errors[key] = dataclasses.replace(error, row=row)
        for row, error in self._judged_errors.items():
            if chunk.start <= row < chunk.end and finished[row - chunk.start]:
                self._errors[row] = error
                self._statuses[row] = error.status
        self._store_extras(chunk, count)
        self.missing -= int(finished.sum())

    def _store_extras(self, chunk: Chunk, count: int) -> None:
        for name, values in chunk.extras.items():
            column = self._extras.get(name)
            if column is None:
                if len(self._extras) >= _MAX_EXTRA_COLUMNS:
                    continue
                column = self._extras[name] = np.full(self.batch.rows, np.nan, np.float32)
            for index, value in values:
                if index < count:
                    column[index + chunk.start] = value

    def fail(self, error: RowError) -> None:
        """Ends a row that its child did not live to finish."""
        self._statuses[error.row] = error.status
        self._errors[error.row] = error
        self.missing -= 1

    def keep(self, chunk: Chunk, blamed: list[int]) -> None:
        """Keeps what there is of rows that a dead child did not finish.

        Async functions are not run again if all of the chunk were through: a judge costs money.

        Args:
            chunk: what the child worked on.
            blamed: rows of the chunk at fault.
        """
        rows = chunk.unfinished()
        header = chunk.child.shared.header
        started = header[Word.ROW_STARTED] or header[Word.STARTED]
        for row in blamed:
            since = started / 1e9 if started else chunk.sent
            self._row_s[chunk.start + row] = time.monotonic() - since
        unfinished = np.zeros(chunk.end - chunk.start, np.bool_)
        unfinished[blamed] = True
        if chunk.child.shared.header[Word.JUDGED]:
            unfinished[rows] = True
        self._merge(chunk, unfinished)
        if chunk.child.shared.header[Word.JUDGED]:
            self._judged[chunk.start : chunk.end][unfinished] = True
            for error in chunk.errors:
                if error.row in rows:
                    row = error.row + chunk.start
                    self._judged_errors.setdefault(row, dataclasses.replace(error, row=row))

    def _merge(self, chunk: Chunk, rows: NDArray[np.bool_]) -> None:
        # NaN never replaces a value: async functions may have run in an earlier child.
        new = chunk.child.shared.rewards[: chunk.end - chunk.start]
        take = rows[:, None] & ~np.isnan(new)
        np.copyto(self._rewards[chunk.start : chunk.end], new, where=take, casting="same_kind")

    def scores(self) -> Scores:
        """Puts the results together, once no row is missing."""
        first = self.arrived if self._first_started is None else self._first_started
        return Scores(
            rewards=self._rewards,
            statuses=self._statuses,
            errors=[self._errors[row] for row in sorted(self._errors)],
            extra_columns=self._extras,
            queue_s=max(0.0, first - self.arrived),
            decode_s=self._decode_s,
            score_s=self._score_s,
            row_s=self._row_s,
            unweighted_errors=list(self._unweighted_errors.values()),
        )


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """Neighbouring rows of a call that one child works on.

    Attributes:
        id: number that the child repeats.
        call: the call.
        child: the child.
        start: first row.
        end: row after the last; lowered when rows are stolen.
        sent: when it was sent, `time.monotonic`.
        errors: failures reported by the child, by row of the chunk.
        unweighted_errors: those of functions with weight 0.
        extras: values of extra columns by name, by row of the chunk.
        killed: status and message for the row at fault, once the parent has killed the child.
        suspect: row of the chunk at fault, or -1 if unknown.
    """

    id: int
    call: Call
    child: ChildProcess
    start: int
    end: int
    sent: float
    errors: list[RowError] = dataclasses.field(default_factory=list)
    unweighted_errors: list[RowError] = dataclasses.field(default_factory=list)
    extras: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)
    killed: tuple[RowStatus, str] | None = None
    suspect: int = -1

    def unfinished(self) -> list[int]:
        """Rows of the chunk without a status."""
        statuses = self.child.shared.statuses[: self.end - self.start]
        rows: list[int] = np.flatnonzero(statuses == 0).tolist()
        return rows


def ranges_of(rows: list[int]) -> list[tuple[int, int]]:
    """Joins ascending rows to ranges of neighbours."""
    ranges: list[tuple[int, int]] = []
    for row in rows:
        if ranges and ranges[-1][1] == row:
            ranges[-1] = (ranges[-1][0], row + 1)
        else:
            ranges.append((row, row + 1))
    return ranges
