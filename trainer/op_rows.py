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
from trainer.calls import countdown
from trainer.codec import LocalRollouts, RowRewards
from trainer.errors import RewardError, ScoringFailed
from trainer.submission import Handle

logger = logging.getLogger(__name__)

MISSING = "MISSING"
_ID_RANGE = 2**32  # devices without 64-bit integers carry the lower half of a row id
Scored = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


@dataclasses.dataclass(slots=True)
class _Row:
    """A row that was put: its place among those put with it, and among those sent with it."""

    rows: LocalRollouts
    index: int
    call: _Call | None = None
    place: int = 0


class OpRows:
    """Rows that wait for the operation, and their rewards until they are taken.

    `start` and `finish` are called by threads of the JAX runtime and never raise.
    """

    def __init__(
        self,
        submit: Callable[[LocalRollouts], Handle],
        reward_fns: Sequence[str],
        *,
        max_rows: int,
    ) -> None:
        """Takes what sends rows.

        Args:
            submit: sends rows to the reward server.
            reward_fns: names of the F functions.
            max_rows: rows that are kept; beyond, the oldest are forgotten.
        """
        self._submit = submit
        self._names = tuple(reward_fns)
        self._max_rows = max_rows
        self._rows: dict[int, _Row] = {}
        self._lock = threading.Lock()

    def put(self, rows: LocalRollouts) -> None:
        """Registers rows, without completions; rows of the same id are replaced."""
        with self._lock:
            for index, row_id in enumerate(rows.row_ids.tolist()):
                self._rows.pop(row_id % _ID_RANGE, None)
                self._rows[row_id % _ID_RANGE] = _Row(rows, index)
            while len(self._rows) > self._max_rows:
                del self._rows[next(iter(self._rows))]

    def take(self, row_ids: Sequence[int]) -> tuple[RowRewards | None, Exception | None]:
        """Removes rows and returns their rewards, and the first error of a whole call.

        Rows that were not put, or not sent, are failed with status MISSING.
        """
        try:
            return self.wait(row_ids, None)
        finally:
            with self._lock:
                for row_id in row_ids:
                    self._rows.pop(row_id % _ID_RANGE, None)

    def retry(self, row_ids: Sequence[int], timeout_s: float) -> None:
        """Sends rows of calls that failed as a whole again, with so many seconds from now."""
        calls = [row.call for row in self._find(np.array(row_ids, np.int64)).values()]
        for call in {id(call): call for call in calls if call is not None}.values():
            call.retry(timeout_s)

    def wait(
        self, row_ids: Sequence[int], timeout_s: float | None
    ) -> tuple[RowRewards | None, Exception | None]:
        """Waits for rows, and keeps them; see `take`.

        Raises:
            TimeoutError: they are not there within `timeout_s`.
        """
        left_s = countdown(timeout_s)
        with self._lock:
            found = [self._rows.get(row_id % _ID_RANGE) for row_id in row_ids]
        parts, error = [], None
        pairs = zip(row_ids, found, strict=True)
        for _, run in itertools.groupby(pairs, lambda pair: id(pair[1] and pair[1].call)):
            ids, rows = zip(*run, strict=True)
            if rows[0] is None or rows[0].call is None:
                message = "the row was not put before the operation ran"
                parts.append(codec.no_rewards(self._names, ids, MISSING, message))
                continue
            rewards, failure = rows[0].call.result(left_s())
            error = error or failure
            parts.append(codec.select_rewards(rewards, [row.place for row in rows], ids))
        return codec.concatenate(parts) if parts else None, error

    def start(self, row_ids: NDArray[np.int64], completion_ids: NDArray[np.int32]) -> None:
        """Sends the rows of a shard; those that were put together go out together.

        Args:
            row_ids: [b], lower halves of the ids.
            completion_ids: [b, T].
        """
        found = self._find(row_ids)
        if len(found) < len(row_ids):
            logger.warning("rows to score were not put rows=%d", len(row_ids) - len(found))
        together: dict[int, list[int]] = {}
        for at, row in found.items():
            together.setdefault(id(row.rows), []).append(at)
        for places in together.values():
            rows = [found[at] for at in places]
            sent = codec.select_rollouts(rows[0].rows, [row.index for row in rows])
            sent = dataclasses.replace(sent, completion_ids=completion_ids[places])
            call = _Call(self._submit, self._names, sent)
            for place, row in enumerate(rows):
                row.call, row.place = call, place

    def finish(self, row_ids: NDArray[np.int64]) -> Scored:
        """Waits for the rewards of a shard.

        Args:
            row_ids: [b], lower halves of the ids.

        Returns:
            Rewards, float64 [b, F], totals, float64 [b], and whether a row has one, bool [b].
        """
        b = len(row_ids)
        rewards = np.full((b, len(self._names)), np.nan)
        totals, valid = np.full(b, np.nan), np.zeros(b, np.bool_)
        for at, row in self._find(row_ids).items():
            if row.call is not None:
                result, _ = row.call.result()
                rewards[at], totals[at] = result.rewards[row.place], result.totals[row.place]
                valid[at] = result.valid[row.place]
        return rewards, totals, valid

    def _find(self, row_ids: NDArray[np.int64]) -> dict[int, _Row]:
        with self._lock:
            rows = [self._rows.get(row_id % _ID_RANGE) for row_id in row_ids.tolist()]
        return {at: row for at, row in enumerate(rows) if row is not None}


class _Call:
    """Rows on their way; whatever goes wrong becomes the status of each of them."""

    def __init__(
        self,
        submit: Callable[[LocalRollouts], Handle],
        names: tuple[str, ...],
        rows: LocalRollouts,
    ) -> None:
        """Sends rows to functions of these names."""
        self._names = names
        self._row_ids = rows.row_ids.tolist()
        self._handle: Handle | None = None
        self._error: Exception | None = None
        self._rewards: RowRewards | None = None
        self._lock = threading.Lock()
        try:
            self._handle = submit(rows)
        except Exception as error:  # noqa: BLE001 - it would end the process inside the JAX runtime
            self._error = error

    def result(self, timeout_s: float | None = None) -> tuple[RowRewards, Exception | None]:
        """Waits for the rewards; also the error if the call failed as a whole.

        Raises:
            TimeoutError: they are not there within `timeout_s`.
        """
        with self._lock:
            if self._rewards is None:
                self._rewards = self._wait(timeout_s)
            return self._rewards, self._error

    def retry(self, timeout_s: float) -> None:
        """Sends the rows again if the call failed as a whole after it was sent."""
        with self._lock:
            if self._error is not None and self._handle is not None:
                self._handle.retry(timeout_s)
                self._rewards = self._error = None

    def _wait(self, timeout_s: float | None) -> RowRewards:
        try:
            rewards = self._handle.result(timeout_s) if self._handle is not None else None
            if rewards is not None and rewards.reward_fns != self._names:
                raise ScoringFailed(  # noqa: TRY301
                    f"the reward functions must stay {self._names}, got {rewards.reward_fns}."
                    " Start the reward server with the same rewards file.",
                    reason="BAD_RESPONSE",
                )
        except TimeoutError:  # only with a timeout, which no callback has
            raise
        except Exception as error:  # noqa: BLE001 - as above
            rewards, self._error = None, error
        if rewards is not None:
            return rewards
        reason = self._error.reason if isinstance(self._error, RewardError) else ""
        logger.warning("rows have no reward rows=%d: %s", len(self._row_ids), self._error)
        return codec.no_rewards(self._names, self._row_ids, reason or "ERROR", str(self._error))
