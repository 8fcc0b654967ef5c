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
from trainer.outages import Outage, OutagePolicy, missing_of
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
        outages: OutagePolicy | None = None,
        stop_reason: Callable[[], str] = str,
    ) -> None:
        """Finds the reward functions of this process and compares them with the others'.

        Args:
            path: where the rewards come from.
            agreement: of all processes.
            policy: what to do about rows without a reward; must be equal on all processes.
            fingerprint: of the trainer's tokenizer.
            outages: what to do when the rewards of a step can't be had; equal on all processes.
                None stops.
            stop_reason: why this process wants to end rather than wait in an outage, or "".

        Raises:
            ProcessesDisagree: a process has no server, or its functions, weights or policy differ.
            RewardError: the only process has no server.
        """
        self._path = path
        self._agreement = agreement
        self._policy = policy
        self._outages = outages or OutagePolicy()
        self._stop_reason = stop_reason
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

        In an outage they wait together, if the policy is to.

        Args:
            submission: rows that were sent, or the error that kept them from it.
            place: the step, for messages; must be equal on all processes.
            failed: the step's rows without a reward so far; equal on all processes.
            on_rewards: called with the rewards of this process, good or not.

        Raises:
            ProcessesDisagree: a process has no rewards; the message has its error.
            ScoringFailed: too many rows have no reward, see `FailedRows.add`.
            StoppedWaiting: a process was asked to stop in an outage.
        """
        start = time.monotonic()
        outage = Outage(self._outages, place, first=self._agreement.process_index == 0)
        rewards, seen = Attempt(submission.result), False
        while True:
            mine = rewards.value
            if mine is not None and not seen:
                seen = True
                self._show(mine, on_rewards)
            agreed = self._agree(place, rewards, outage)
            if not agreed["missing"]:
                break
            rewards = outage.go_on(submission, rewards, agreed)
        outage.end()
        wait_s, summary = time.monotonic() - start, agreed["rows"]
        self._log_failures(place, summary)
        with raised_by_all():
            failed.add(place, summary)
        if mine is None:
            values = np.zeros((0, advantage.packed_columns(len(self.names))), np.float32)
        else:
            values = advantage.pack(mine, failed_value=self._policy.value)
        return PackedRewards(values, wait_s, summary["reasons"])

    def _agree(self, place: str, rewards: Attempt, outage: Outage) -> dict[str, Any]:
        """Tells the others what this process has, see `_merged`; one that fails raises on all."""
        mine, missing = rewards.value, outage.missing(rewards.error)
        limit_s = self._path.timeout_s
        agreed: dict[str, Any] = self._agreement.exchange(
            place,
            {
                "fns": list(mine.reward_fns) if mine else self.names,
                "rows": failures.summarize(mine),
                "missing": missing,
                "stop": self._stop_reason(),
            },
            _merged,
            error=None if missing else rewards.error,
            timeout_s=None if limit_s is None else limit_s + _MARGIN_S,
        )
        return agreed

    def _show(self, mine: RowRewards, on_rewards: Callable[[RowRewards], None] | None) -> None:
        """Hands the rewards of this process on."""
        if on_rewards is not None:
            with self._agreement.deferred():
                on_rewards(mine)
        for failure in mine.failures:
            # The message is the function's own and may quote the completion.
            logger.debug(
                "row failed row=%d status=%s fn=%s worker=%s: %s",
                failure.row_id,
                failure.status,
                failure.reward_fn,
                failure.worker or "-",
                failure.message,
            )

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
    """Makes one summary of the rows of all processes, "rows", beside that of `missing_of`."""
    check_equal("the reward functions", [answer["fns"] for answer in answers])
    return missing_of(answers) | {"rows": failures.merge([answer["rows"] for answer in answers])}


def _check_offers(offers: list[dict[str, Any]]) -> None:
    """Checks that the reward servers of all processes have the same to offer."""
    check_equal("the reward path", [offer["path"] for offer in offers])
    check_equal("the reward functions, weights and settings", [offer["fns"] for offer in offers])
    check_equal("the tokenizer", [offer["tokenizer"] for offer in offers])
    check_equal("the failure policy", [offer["policy"] for offer in offers])
