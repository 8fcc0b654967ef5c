# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a step on their way to the reward server, in parts, as their samples are ready. No JAX.

Legend: b rows that this process owns, C columns of packed rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainer import codec
from trainer.calls import countdown


class Handle(Protocol):
    """Rewards of some rows that are on their way."""

    def result(self, timeout_s: float | None = None) -> codec.RowRewards | None:
        """Waits for them; None if there are no rows. TimeoutError: ask again."""
        ...

    def retry(self, timeout_s: float) -> None:
        """Sends again what has no answer, with so many seconds from now."""
        ...


class Submission:
    """Parts of the rows that a process owns, and their rewards in the order of sending."""

    def __init__(self, submit: Callable[[codec.LocalRollouts], Handle]) -> None:
        """Takes what sends rows."""
        self._submit = submit
        self._parts: list[codec.LocalRollouts] = []
        self._handles: list[Handle] = []
        self._error: Exception | None = None

    def send(self, make: Callable[[], codec.LocalRollouts]) -> None:
        """Makes the rows of a part and sends them; an error waits until the rewards are wanted.

        This process must go on to the collectives of the others until all know of it.
        """
        if self._error is not None:
            return
        try:
            self._parts.append(make())
            self._handles.append(self._submit(self._parts[-1]))
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._error = error

    @property
    def rollouts(self) -> codec.LocalRollouts:
        """The rows that were made, in the order of sending."""
        return codec.concatenate_rollouts(self._parts)

    def result(self, timeout_s: float | None = None) -> codec.RowRewards | None:
        """Waits for the rewards of all parts, in the order of sending.

        Args:
            timeout_s: longest wait in seconds; None waits for their end.

        Returns:
            The rewards, or None if no row was sent.

        Raises:
            Exception: what kept rows from being sent, or a RewardError.
            TimeoutError: they are not there within `timeout_s`; ask again.
        """
        if self._error is not None:
            raise self._error
        left_s = countdown(timeout_s)
        waited = [handle.result(left_s()) for handle in self._handles]
        parts = [part for part in waited if part is not None]
        return codec.concatenate(parts) if parts else None

    def retry(self, timeout_s: float) -> None:
        """Sends again what has no answer.

        Args:
            timeout_s: seconds from now for the rewards.
        """
        for handle in self._handles:
            handle.retry(timeout_s)

    def in_held_order(self, values: NDArray[np.float32], owned_shards: int) -> NDArray[np.float32]:
        """Puts rows [b, C] from the order of sending into that of the process's shards."""
        return join_runs(values, [len(part.row_ids) for part in self._parts], owned_shards)


def join_runs(
    values: NDArray[np.float32], sizes: Sequence[int], owned_shards: int
) -> NDArray[np.float32]:
    """Joins runs, each of which lies shard by shard, to rows that do.

    Args:
        values: float32 [b, C], one run after the other.
        sizes: rows of each run.
        owned_shards: shards whose rows are in each run.

    Example:
        >>> join_runs(np.array([[0.0], [2.0], [1.0], [3.0]], np.float32), [2, 2], 2)[:, 0]
        array([0., 1., 2., 3.], dtype=float32)
    """
    if len(sizes) < 2 or not owned_shards:
        return values
    runs = np.split(values, np.cumsum(sizes)[:-1])
    by_shard = [run.reshape(owned_shards, -1, values.shape[1]) for run in runs]
    return np.concatenate(by_shard, axis=1).reshape(-1, values.shape[1])
