# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards that all processes have, or none goes on: connect, wait, decide. No collectives.

Legend: b rows that this process owns, F reward functions.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer import advantage, failures
from trainer.agreement import Agreement, Attempt, check_equal
from trainer.codec import RowRewards
from trainer.exchange import raised_by_all
from trainer.failures import FailedRows, FailurePolicy
from trainer.paths.path import RewardPath, StepRewards

logger = logging.getLogger(__name__)

# Rewards of one process may take this much longer than those of another.
_MARGIN_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class PackedRewards:
    """Rewards of the rows that this process owns, ready for the device.

    Attributes:
        values: float32 [b, 3 F + 4], see `trainer.advantage.pack`.
        wait_s: seconds this process waited for them.
        failed: rows without a reward by status, over all processes.
    """

    values: NDArray[np.float32]
    wait_s: float
    failed: dict[str, int]


class AgreedRewards:
    """Gets the rewards of all processes and applies the failure policy.

    Attributes:
        names: the reward functions, in the order of the matrix.
        weights: of the functions.
        settings: of the functions, by name, see `RewardFnInfo.settings`.
    """

    def __init__(
        self,
        path: RewardPath,
        *,
        agreement: Agreement,
        policy: FailurePolicy,
        fingerprint: str,
    ) -> None:
        """Finds the reward functions of this process and compares them with the others'.

        Args:
            path: where the rewards come from.
            agreement: of all processes.
            policy: what to do about rows without a reward; must be equal on all processes.
            fingerprint: of the trainer's tokenizer.

        Raises:
            ProcessesDisagree: a process has no server, or its functions, weights or policy differ.
            RewardError: the only process has no server.
        """
        self._path = path
        self._agreement = agreement
        self._policy = policy
        mine = Attempt(lambda: path.connect(fingerprint))
        value = {
            "path": path.name,
            "fns": mine.value,
            "policy": dataclasses.asdict(policy),
            "tokenizer": fingerprint[:12],
        }
        agreement.exchange("connect to the reward server", value, _check_offers, error=mine.error)
        self.names = [str(name) for name, *_ in mine.value]
        self.weights = tuple(float(weight) for _, weight, *_ in mine.value)
        self.settings: list[dict[str, str]] = [settings for _, _, settings, _ in mine.value]

    def wait(
        self,
        submission: StepRewards,
        place: str,
        failed: FailedRows,
        on_rewards: Callable[[RowRewards], None] | None = None,
    ) -> PackedRewards:
        """Waits for the rewards of this process; all processes go on, or none does.

        Args:
            submission: rows that were sent, or the error that kept them from it.
            place: the step, for messages; must be equal on all processes.
            failed: the step's rows without a reward so far; equal on all processes.
            on_rewards: called with the rewards of this process, good or not.

        Raises:
            ProcessesDisagree: a process has no rewards; the message has its error.
            ScoringFailed: too many rows have no reward, see `FailedRows.add`.
        """
        start = time.monotonic()
        rewards = Attempt(submission.result)
        wait_s = time.monotonic() - start
        mine = rewards.value
        if mine is not None and on_rewards is not None:
            with self._agreement.deferred():
                on_rewards(mine)
        for failure in mine.failures if mine else ():
            # The message is the function's own and may quote the completion.
            logger.debug(
                "row failed row=%d status=%s fn=%s worker=%s: %s",
                failure.row_id,
                failure.status,
                failure.reward_fn,
                failure.worker or "-",
                failure.message,
            )
        limit_s = self._path.timeout_s
        summary = self._agreement.exchange(
            place,
            {
                "fns": list(mine.reward_fns) if mine else self.names,
                "rows": failures.summarize(mine),
            },
            _merged,
            error=rewards.error,
            timeout_s=None if limit_s is None else limit_s + _MARGIN_S,
        )
        self._log_failures(place, summary)
        with raised_by_all():
            failed.add(place, summary)
        if mine is None:
            values = np.zeros((0, advantage.packed_columns(len(self.names))), np.float32)
        else:
            values = advantage.pack(mine, failed_value=self._policy.value)
        return PackedRewards(values, wait_s, summary["reasons"])

    def _log_failures(self, place: str, summary: dict[str, Any]) -> None:
        """Says once for the job why rows failed."""
        if self._agreement.process_index != 0:
            return
        for cause, failed in failures.causes([summary]):
            logger.warning(
                "%s: rows failed rows=%d of=%d status=%s fn=%s worker=%s cause=%s",
                place,
                failed,
                summary["rows"],
                *(cause.status, cause.reward_fn, cause.worker, cause.what),
            )


def _merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Makes one summary of the rows of all processes."""
    check_equal("the reward functions", [answer["fns"] for answer in answers])
    return failures.merge([answer["rows"] for answer in answers])


def _check_offers(offers: list[dict[str, Any]]) -> None:
    """Checks that the reward servers of all processes have the same to offer."""
    check_equal("the reward path", [offer["path"] for offer in offers])
    check_equal("the reward functions, weights and settings", [offer["fns"] for offer in offers])
    check_equal("the tokenizer", [offer["tokenizer"] for offer in offers])
    check_equal("the failure policy", [offer["policy"] for offer in offers])
