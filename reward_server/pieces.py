# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A call whose rows are scored in pieces by several workers, and how the pieces are joined.

Bookkeeping only; `reward_server.router` decides which piece goes where.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import numpy as np

from reward_server.batch import Batch, Deadline, RewardFnInfo, Scores


@dataclasses.dataclass(eq=False)
class RoutedCall:
    """One call's rows that have not been given out, and its finished pieces.

    Attributes:
        batch: the rows.
        request_id: its id, of which those of its pieces are made.
        reward_fns: functions that it began with.
        reward_fns_digest: hash of what decides their rewards.
        deadline: when its time is over.
        next_row: first row that has never been given out.
        again: ranges of rows whose worker was lost.
        pieces: answers by first row.
        scored: rows of those.
        running: pieces under way.
        failed: why it can't be completed.
        ended: set when no more is to be done.
    """

    batch: Batch
    request_id: str
    reward_fns: tuple[RewardFnInfo, ...]
    reward_fns_digest: str
    deadline: Deadline
    next_row: int = 0
    again: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    pieces: dict[int, Scores] = dataclasses.field(default_factory=dict)
    scored: int = 0
    running: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    failed: Exception | None = None
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def queued(self) -> int:
        """Rows that no worker has, as long as the call goes on."""
        if self.ended.is_set():
            return 0
        return self.batch.rows - self.next_row + sum(b - a for a, b in self.again)

    def store(self, start: int, scores: Scores) -> None:
        """Takes the answer to a piece."""
        self.pieces[start] = scores
        self.scored += len(scores.statuses)
        if self.scored == self.batch.rows:
            self.ended.set()

    def fail(self, error: Exception) -> None:
        """Ends the call."""
        self.failed = error
        self.ended.set()

    def take(self, rows: int) -> tuple[int, int]:
        """Takes a lost piece, or else so many new rows."""
        if self.again:
            return self.again.pop(0)
        start = self.next_row
        last = min(start + rows, self.batch.rows) - 1
        self.next_row = self.batch.end_of_group(last)
        return start, self.next_row


def gather(call: RoutedCall) -> Scores:
    """Joins the pieces in row order."""
    functions = len(call.reward_fns)
    pieces: Sequence[tuple[int, Scores]] = sorted(call.pieces.items())
    rows = call.batch.rows
    names = {name for _, scores in pieces for name in scores.extra_columns}
    extra = {name: np.full(rows, np.nan, np.float32) for name in sorted(names)}
    errors = []
    for start, scores in pieces:
        for name, values in scores.extra_columns.items():
            extra[name][start : start + len(values)] = values
        errors += [dataclasses.replace(e, row=start + e.row) for e in scores.errors]
    all_scores = [scores for _, scores in pieces]
    return Scores(
        rewards=np.concatenate([np.empty((0, functions)), *(s.rewards for s in all_scores)]),
        statuses=np.concatenate([np.empty(0, np.uint8), *(s.statuses for s in all_scores)]),
        errors=errors,
        extra_columns=extra,
        queue_s=max((s.queue_s for s in all_scores), default=0.0),
        decode_s=sum(s.decode_s for s in all_scores),
        score_s=np.sum([np.zeros(functions), *(s.score_s for s in all_scores)], axis=0),
    )
