# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards that come back to the host of the process that owns the rows. `grpc` is this path."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import NDArray

from trainer.arrays import RowArrays
from trainer.codec import LocalRollouts, RowRewards
from trainer.micro_batches import rows_of_part
from trainer.paths import GRPC
from trainer.paths.path import SampledPart
from trainer.paths.server import ServerPath
from trainer.submission import Handle, Submission


class HostRewards:
    """Rewards of a step that each process gets for its own rows."""

    def __init__(
        self,
        arrays: RowArrays,
        make: Callable[[SampledPart], LocalRollouts],
        submit: Callable[[LocalRollouts], Handle],
    ) -> None:
        """Takes what makes the rows of a part on the host, and what sends them."""
        self._arrays = arrays
        self._make = make
        self._parts = Submission(submit)

    def send(self, part: SampledPart) -> None:
        """Sends the rows that this process owns, see `StepRewards.send`."""
        self._parts.send(lambda: self._make(part))

    @property
    def rollouts(self) -> LocalRollouts:
        """The rows that were sent."""
        return self._parts.rollouts

    def result(self, timeout_s: float | None = None) -> RowRewards | None:
        """Waits for their rewards, see `StepRewards.result`."""
        return self._parts.result(timeout_s)

    def retry(self, timeout_s: float) -> None:
        """Sends again what has no answer, see `StepRewards.retry`."""
        self._parts.retry(timeout_s)

    def contributions(self, values: NDArray[np.float32], sizes: list[int]) -> list[jax.Array]:
        """Puts the values of each micro-batch on the device, see `StepRewards.contributions`."""
        owned_shards = len(self._arrays.layout.owned_shards)
        held = self._parts.in_held_order(values, owned_shards)
        return [
            self._arrays.from_owned_rows(rows_of_part(held, sizes, index, owned_shards), n)
            for index, n in enumerate(sizes)
        ]


class GrpcPath(ServerPath):
    """Each process sends the rows it owns to its reward server."""

    name = GRPC

    def begin(self, place: str) -> HostRewards:
        """Starts a step."""
        del place
        return HostRewards(
            self._arrays, lambda part: part.owned_rollouts(self._arrays), self._client.submit
        )
