# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner asks of a reward path: it takes sampled rows and gives their rewards.

Legend: B global rows, b rows that this process holds, R replicas, C columns of packed rewards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from trainer.arrays import RowArrays
from trainer.codec import LocalRollouts, RowRewards
from trainer.rollout import RolloutArrays


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledPart:
    """Rows that were sampled together.

    Attributes:
        rollouts: of all processes, on the device; they may still be under way.
        held_row_ids: int64 [b], in the order in which this process holds the rows.
        host_rows: makes the rows that this process owns, without `completion_ids`.
    """

    rollouts: RolloutArrays
    held_row_ids: NDArray[np.int64]
    host_rows: Callable[[], LocalRollouts]

    def owned_rollouts(self, arrays: RowArrays) -> LocalRollouts:
        """Copies the owned rows' completions to the host, with all that goes with them.

        Raises:
            RuntimeError: JAX holds other rows than the layout says.
        """
        rows = self.host_rows()
        completion_ids = arrays.owned_rows(self.rollouts.completion_ids)
        if len(completion_ids) != len(rows.row_ids):
            raise RuntimeError(
                f"process {arrays.layout.process_index} owns {len(rows.row_ids)} rows but JAX"
                f" gave it {len(completion_ids)}; rows would be missed or scored twice."
            )
        return dataclasses.replace(rows, completion_ids=completion_ids)


class StepRewards(Protocol):
    """Rewards of a step on their way. All processes make the same calls in the same order."""

    def send(self, part: SampledPart) -> None:
        """Takes rows; an error waits until the rewards are wanted.

        This process must go on to the collectives of the others until all know of it.
        """
        ...

    @property
    def rollouts(self) -> LocalRollouts:
        """The rows of this process that were sent, in the order of sending."""
        ...

    def result(self, timeout_s: float | None = None) -> RowRewards | None:
        """Waits for the rewards of the rows that this process owns, in the order of sending.

        Args:
            timeout_s: longest wait in seconds after `retry`; None waits for their end.

        Returns:
            The rewards, or None if the process owns no row.

        Raises:
            Exception: what kept rows from being sent, or a RewardError.
            TimeoutError: they are not there within `timeout_s`; ask again.
        """
        ...

    def retry(self, timeout_s: float) -> None:
        """Sends again, after an outage, what has no answer: the same rows with the same ids.

        All processes call it, also those that have their rewards, after they agreed to.

        Args:
            timeout_s: seconds from now for the rewards.
        """
        ...

    def contributions(self, values: NDArray[np.float32], sizes: list[int]) -> list[jax.Array]:
        """Puts rewards on the device, after all processes have theirs.

        Args:
            values: packed rewards of the owned rows, in the order of sending.
            sizes: global rows of each micro-batch.

        Returns:
            float32 [R, B, C] for each micro-batch; the sum over R is the packed rewards.
        """
        ...


class RewardPath(Protocol):
    """Where the rewards of a run come from; the same on all processes."""

    @property
    def name(self) -> str:
        """What it is."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """Longest wait for the rewards of a step, or None where nothing bounds it."""
        ...

    def connect(self, fingerprint: str) -> list[list[Any]]:
        """Finds the reward functions: name, weight, settings and hash of the code of each.

        Args:
            fingerprint: of the trainer's tokenizer.

        Raises:
            RewardError: there is no server, or it has another tokenizer.
        """
        ...

    def begin(self, place: str) -> StepRewards:
        """Starts a step.

        Args:
            place: the step, for messages; equal on all processes.
        """
        ...
