# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards by a JAX operation that calls the reward server, see `trainer.reward_op`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from trainer import codec
from trainer.agreement import Attempt
from trainer.arrays import RowArrays
from trainer.calls import countdown
from trainer.client import RewardClient
from trainer.codec import LocalRollouts, RowRewards
from trainer.paths import CALLBACK
from trainer.paths.path import SampledPart
from trainer.paths.server import ServerPath
from trainer.reward_op import RewardOp

# Every row is taken, unless the run ends.
_ALL_ROWS = 2**31


class CallbackPath(ServerPath):
    """The program that takes the tokens calls the reward server."""

    name = CALLBACK

    def __init__(
        self, client: RewardClient, arrays: RowArrays, *, failed_value: float | None
    ) -> None:
        """Takes the client of this process's reward server.

        Args:
            client: of this process.
            arrays: where the rows lie.
            failed_value: total of a row without one, or None when it is masked.
        """
        super().__init__(client, arrays)
        self._failed_value = failed_value
        self._op: RewardOp | None = None
        self._programs: tuple[Any, Any] | None = None

    def connect(self, fingerprint: str) -> list[list[Any]]:
        """Asks the server, see `RewardPath.connect`; its functions are part of the program."""
        offered = super().connect(fingerprint)
        self._op = RewardOp(
            self._client,
            self._arrays.mesh,
            data_axes=self._arrays.data_axes,
            reward_fns=[name for name, *_ in offered],
            max_rows=_ALL_ROWS,
        )
        finish = functools.partial(self._op.finish_packed, self._failed_value)
        self._programs = jax.jit(self._op.start), jax.jit(finish)
        return offered

    def begin(self, place: str) -> CallbackRewards:
        """Starts a step."""
        del place
        assert self._op is not None
        assert self._programs is not None
        return CallbackRewards(self._arrays, self._op, *self._programs)


class CallbackRewards:
    """Rewards of a step that programs under way will have."""

    def __init__(self, arrays: RowArrays, op: RewardOp, start: Any, finish: Any) -> None:
        """Takes the operation and programs of its halves."""
        self._arrays = arrays
        self._op = op
        self._start = start
        self._finish = finish
        self._parts: list[tuple[SampledPart, Attempt]] = []
        self._started: list[tuple[jax.Array, jax.Array]] = []
        self._packed: list[jax.Array] = []
        self._stale = False

    def send(self, part: SampledPart) -> None:
        """Starts the program, also when this process's rows can't be put: all processes do."""
        self._parts.append((part, Attempt(lambda: self._put(part))))
        n = part.rollouts.completion_ids.shape[0]
        ids = self._arrays.from_local_rows((part.held_row_ids % 2**32).astype(np.uint32), n)
        self._started.append((ids, self._start(ids, part.rollouts.completion_ids)))

    def _put(self, part: SampledPart) -> LocalRollouts:
        rows = part.host_rows()
        fields = {field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)}
        del fields["completion_ids"]
        self._op.put(**fields)
        return rows

    @property
    def rollouts(self) -> LocalRollouts:
        """The rows that were sent."""
        return codec.concatenate_rollouts(
            [part.owned_rollouts(self._arrays) for part, _ in self._parts]
        )

    def result(self, timeout_s: float | None = None) -> RowRewards | None:
        """Runs the second programs, see `StepRewards.result`; after `retry` the host waits."""
        if not self._stale:
            self._run_finish()
        left_s = countdown(timeout_s)
        put = [rows.get() for _, rows in self._parts]
        waited = [self._op.wait(rows.row_ids.tolist(), left_s()) for rows in put]
        parts = [rewards for rewards in waited if rewards is not None]
        return codec.concatenate(parts) if parts else None

    def retry(self, timeout_s: float) -> None:
        """Sends again what has no answer, see `StepRewards.retry`."""
        self._stale = True
        for _, rows in self._parts:
            self._op.retry(rows.get().row_ids.tolist(), timeout_s)

    def _run_finish(self) -> None:
        self._packed = jax.block_until_ready([self._finish(*part) for part in self._started])
        self._stale = False

    def contributions(self, values: NDArray[np.float32], sizes: list[int]) -> list[jax.Array]:
        """Cuts what is on the device already, see `StepRewards.contributions`."""
        del values
        arrays = self._arrays
        if self._stale:
            self._run_finish()
        for _, rows in self._parts:
            self._op.take(rows.get().row_ids.tolist())
        packed = arrays.join_each_shard(self._packed)
        parts = arrays.layout.merged_parts(sizes)
        return [arrays.part_of_each_shard(packed, part)[None] for part in parts]
