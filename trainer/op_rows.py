# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The host's side of the reward operation: rows by id, and what became of them. No JAX.

Legend: b rows of a data shard, F reward functions, T tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trainer import codec
from trainer.codec import LocalRollouts, RowRewards
from trainer.errors import RewardError, ScoringFailed
from trainer.submission import Handle

logger = logging.getLogger(__name__)

MISSING = "MISSING"
_ID_RANGE = 2**32  # devices without 64-bit integers carry the lower half of a row id
Scored = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]


@dataclasses.dataclass(slots=True)
class _Row:
    """A row that was put: its place among those put with it, and among those scored with it."""

    rows: LocalRollouts
    index: int
    rewards: RowRewards | None = None
    place: int = 0
    error: Exception | None = None


class OpRows:
    """Rows that wait for the operation, and their rewards until they are taken.

    Its methods are called by threads of the JAX runtime, too; `score` and `wait` never raise.
    """

    def __init__(
        self,
        submit: Callable[[LocalRollouts], Handle],
        reward_fns: Sequence[str],
        *,
        timeout_s: float,
        max_rows: int,
    ) -> None:
        """Takes what sends rows.

        Args:
            submit: sends rows to the reward server.
            reward_fns: names of the F functions.
            timeout_s: longest wait for the rewards of a shard.
            max_rows: rows that are kept; beyond, the oldest are forgotten.
        """
        self._submit = submit
        self._names = tuple(reward_fns)
        self._timeout_s = timeout_s
        self._max_rows = max_rows
        self._rows: dict[int, _Row] = {}
        self._changed = threading.Condition()

    def put(self, rows: LocalRollouts) -> None:
        """Registers rows, without completions; rows of the same id are replaced."""
        with self._changed:
            for index, row_id in enumerate(rows.row_ids.tolist()):
                self._rows.pop(row_id % _ID_RANGE, None)
                self._rows[row_id % _ID_RANGE] = _Row(rows, index)
            while len(self._rows) > self._max_rows:
                del self._rows[next(iter(self._rows))]

    def take(self, row_ids: Sequence[int]) -> tuple[RowRewards | None, Exception | None]:
        """Removes rows and returns their rewards, and the first error of a whole call.

        Rows that were not put, or not scored, are failed with status MISSING.
        """
        with self._changed:
            found = [self._rows.pop(row_id % _ID_RANGE, None) for row_id in row_ids]
        error = next((row.error for row in found if row is not None and row.error), None)
        parts = []
        pairs = zip(row_ids, found, strict=True)
        for _, run in itertools.groupby(pairs, lambda pair: id(pair[1] and pair[1].rewards)):
            ids, some = zip(*run, strict=True)
            if some[0] is None or some[0].rewards is None:
                parts.append(self._missing(ids))
            else:
                parts.append(codec.select_rewards(some[0].rewards, [r.place for r in some], ids))
        return codec.concatenate(parts) if parts else None, error

    def score(self, row_ids: NDArray[np.int64], completion_ids: NDArray[np.int32]) -> Scored:
        """Sends the rows of a shard and waits for their rewards.

        Args:
            row_ids: [b], lower halves of the ids.
            completion_ids: [b, T].

        Returns:
            Rewards [b, F], totals [b] and whether a row has one, [b].
        """
        b = len(row_ids)
        rewards = np.full((b, len(self._names)), np.nan, np.float32)
        totals, valid = np.full(b, np.nan, np.float32), np.zeros(b, np.bool_)
        try:
            for places, result in self._results(row_ids.tolist(), completion_ids):
                rewards[places], totals[places] = result.rewards, result.totals
                valid[places] = result.valid
        except Exception as error:  # it would end the process from inside the JAX runtime
            logger.exception("the reward operation failed rows=%d", b)
            self._fail(row_ids.tolist(), error)
        return rewards, totals, valid

    def _fail(self, row_ids: list[int], error: Exception) -> None:
        with self._changed:
            for row_id in row_ids:
                if row := self._rows.get(row_id):
                    ids = [int(row.rows.row_ids[row.index])]
                    row.rewards = codec.no_rewards(self._names, ids, "ERROR", str(error))
                    row.place, row.error = 0, error
            self._changed.notify_all()

    def _results(
        self, row_ids: list[int], completion_ids: NDArray[np.int32]
    ) -> list[tuple[list[int], RowRewards]]:
        """Scores rows; those that were put together go out together."""
        with self._changed:
            found = {at: row for at, i in enumerate(row_ids) if (row := self._rows.get(i))}
        if len(found) < len(row_ids):
            logger.warning("rows to score were not put rows=%d", len(row_ids) - len(found))
        together: dict[int, list[int]] = {}
        for at, row in found.items():
            together.setdefault(id(row.rows), []).append(at)
        calls = []
        for places in together.values():
            rows = [found[at] for at in places]
            sent = dataclasses.replace(
                codec.select_rollouts(rows[0].rows, [row.index for row in rows]),
                completion_ids=completion_ids[places],
            )
            calls.append((places, _Call(self._submit, sent)))
        results = []
        for places, call in calls:
            result, error = call.result(self._names)
            with self._changed:
                for place, at in enumerate(places):
                    row = found[at]
                    row.rewards, row.place, row.error = result, place, error
                self._changed.notify_all()
            results.append((places, result))
        return results

    def wait(self, row_ids: NDArray[np.int64]) -> None:
        """Waits until the rows of a shard have been scored; rows that were not put are left out."""

        def scored() -> bool:
            rows = (self._rows.get(row_id) for row_id in row_ids.tolist())
            return all(row is None or row.rewards is not None for row in rows)

        with self._changed:
            self._changed.wait_for(scored, self._timeout_s)

    def _missing(self, row_ids: Sequence[int]) -> RowRewards:
        message = "the row was not put before the operation ran"
        return codec.no_rewards(self._names, row_ids, MISSING, message)


class _Call:
    """Rows on their way; whatever goes wrong becomes the status of each of them."""

    def __init__(self, submit: Callable[[LocalRollouts], Handle], rows: LocalRollouts) -> None:
        self._rows = rows
        self._error: Exception | None = None
        self._handle: Handle | None = None
        try:
            self._handle = submit(rows)
        except Exception as error:  # noqa: BLE001 - it goes to the rows
            self._error = error

    def result(self, names: tuple[str, ...]) -> tuple[RowRewards, Exception | None]:
        """The rewards, and the error if the call failed as a whole."""
        try:
            rewards = self._handle.result() if self._handle is not None else None
            if rewards is not None and rewards.reward_fns != names:
                raise ScoringFailed(  # noqa: TRY301
                    f"the reward functions must stay {names}, got {rewards.reward_fns}."
                    " Start the reward server with the same rewards file.",
                    reason="BAD_RESPONSE",
                )
        except Exception as error:  # noqa: BLE001 - as above
            rewards, self._error = None, error
        if rewards is not None:
            return rewards, None
        reason = self._error.reason if isinstance(self._error, RewardError) else ""
        ids = self._rows.row_ids.tolist()
        logger.warning("rows have no reward rows=%d: %s", len(ids), self._error)
        return codec.no_rewards(names, ids, reason or "ERROR", str(self._error)), self._error
