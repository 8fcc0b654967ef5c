# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A call whose rows are scored in pieces by several workers: how large, and how they are joined.

Bookkeeping only; `reward_server.router` decides which piece goes where.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from reward_server.batch import Batch, Scores

MAX_PIECE_ROWS = 256
# What a worker is asked to do at a time: long beside the way back and forth, short beside a step.
_PIECE_S = 0.05
_LEAST_PIECE_S = 0.002
_SMOOTHING = 0.1


@dataclasses.dataclass(eq=False)
class RoutedCall:
    """One call's rows that have not been given out, and its finished pieces.

    Attributes:
        batch: the rows.
        request_id: its id, of which those of its pieces are made.
        timeout_s: seconds it was given.
        deadline: when those are over, `time.monotonic`.
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
    timeout_s: float
    deadline: float
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


class PieceSize:
    """Pieces of about 50 ms of a slot, of a row each where rows take longer than that.

    Rows may cost very different amounts. Several dear ones in a piece would wait for each other
    while other workers have nothing to do, so until a cost is known a piece is one row.
    """

    def __init__(self) -> None:
        self.row_s: float | None = None

    def observe(self, rows: int, slot_s: float) -> None:
        """Takes note of the seconds that a piece took of a worker's slots."""
        cost = slot_s / max(1, rows)
        if self.row_s is None:
            self.row_s = cost
        # A large piece tells more about the mean than a row does.
        share = 1 - (1 - _SMOOTHING) ** rows
        self.row_s += share * (cost - self.row_s)

    def rows(self, queued: int, slots: int, rows_per_slot: int) -> int:
        """Rows of the next piece, when so many are waiting for so many slots."""
        if rows_per_slot > 1:
            # Rows of async functions run side by side: the slots share all there are.
            return max(1, min(rows_per_slot, MAX_PIECE_ROWS, math.ceil(queued / max(1, slots))))
        if self.row_s is None:
            return 1
        row_s = max(self.row_s, 1e-9)
        most = max(1, min(MAX_PIECE_ROWS, int(_PIECE_S / row_s)))
        # Smaller towards the end, so that workers end together, but never so small that the way
        # back and forth costs more than that.
        return min(most, max(int(_LEAST_PIECE_S / row_s), math.ceil(queued / (2 * max(1, slots)))))


def gather(call: RoutedCall, functions: int) -> Scores:
    """Joins the pieces in row order."""
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
        rewards=np.concatenate(
            [np.empty((0, functions), np.float32), *(s.rewards for s in all_scores)]
        ),
        statuses=np.concatenate([np.empty(0, np.uint8), *(s.statuses for s in all_scores)]),
        errors=errors,
        extra_columns=extra,
        queue_s=max((s.queue_s for s in all_scores), default=0.0),
        decode_s=sum(s.decode_s for s in all_scores),
        score_s=np.sum([np.zeros(functions), *(s.score_s for s in all_scores)], axis=0),
    )
