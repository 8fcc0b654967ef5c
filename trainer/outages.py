# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards that a machine keeps from coming: whether all processes wait for them, and how long.

Waiting is agreed upon: those that have their rewards go on to one exchange after the other
meanwhile, so that no bound of an exchange ends what all have agreed to wait for.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from typing import Any

from trainer.agreement import Attempt
from trainer.errors import RewardError
from trainer.exchange import NOTICE_S, in_words
from trainer.paths.path import StepRewards

logger = logging.getLogger(__name__)

STOP, WAIT = "stop", "wait"


class StoppedWaiting(Exception):  # noqa: N818 - the run was asked to end, nothing failed
    """All processes have agreed to end the run in place of waiting on; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutagePolicy:
    """What to do when the rewards of a step can't be had from a machine.

    Attributes:
        on_reward_outage: "stop": the run ends on all processes; "wait": all wait, and the same
            rows are sent again until they have rewards.
        outage_timeout_s: longest wait in seconds, after the client's own `timeout_s`; then the
            run ends as with "stop".
    """

    on_reward_outage: str = STOP
    outage_timeout_s: float = 3600.0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the setting, the rule and the value.
        """
        if self.on_reward_outage not in (STOP, WAIT):
            raise ValueError(
                f"`on_reward_outage` must be stop or wait, got {self.on_reward_outage!r}."
            )
        if not 0 < self.outage_timeout_s < math.inf:
            raise ValueError(
                f"`outage_timeout_s` must be > 0 seconds and finite, got {self.outage_timeout_s}."
            )


class Outage:
    """The outage of a step, if it has one; the same on all processes."""

    def __init__(self, policy: OutagePolicy, place: str, *, first: bool) -> None:
        """Begins without one.

        Args:
            policy: equal on all processes.
            place: the step, for the log.
            first: whether this process writes down now and then how it goes.
        """
        self._policy = policy
        self._place = place
        self._first = first
        self._since: float | None = None
        self._noticed = 0.0
        self._cause = ""

    def missing(self, error: Exception | None) -> str:
        """Why this process may wait for its rewards, or "": it has them, or an error that stays."""
        if self._since is not None:
            return self._cause if isinstance(error, TimeoutError) else ""
        waits = self._policy.on_reward_outage == WAIT
        if waits and isinstance(error, RewardError) and error.outage:
            self._cause = in_words(error)
        return self._cause

    def go_on(self, rewards: StepRewards, mine: Attempt, agreed: dict[str, Any]) -> Attempt:
        """Waits a while, after all have agreed to; the first time sends what is missing again.

        Args:
            rewards: of the step.
            mine: what this process has of them.
            agreed: see `missing_of`.

        Returns:
            What it has now.

        Raises:
            StoppedWaiting: a process was asked to stop.
        """
        if agreed["stop"]:
            logger.warning(
                "%s: stopping in a reward outage: process %d got %s", self._place, *agreed["stop"]
            )
            raise StoppedWaiting(agreed["stop"][1])
        now = time.monotonic()
        if self._since is None:
            self._since = self._noticed = now
            logger.warning(
                "%s: reward outage, all processes wait outage_timeout_s=%g processes=%s cause=%s",
                *(self._place, self._policy.outage_timeout_s, agreed["missing"], agreed["cause"]),
            )
            rewards.retry(self._policy.outage_timeout_s)
        elif self._first and now - self._noticed > NOTICE_S / 2:
            self._noticed = now
            logger.warning(
                "%s: waiting in a reward outage waited_s=%.0f left_s=%.0f processes=%s cause=%s",
                *(self._place, now - self._since, self._left_s(now)),
                *(agreed["missing"], agreed["cause"]),
            )
        if mine.error is None:
            return mine
        return Attempt(lambda: rewards.result(NOTICE_S))

    def _left_s(self, now: float) -> float:
        assert self._since is not None
        return self._policy.outage_timeout_s - (now - self._since)

    def end(self) -> None:
        """Says so, when all have their rewards."""
        if self._since is not None:
            waited_s = time.monotonic() - self._since
            logger.warning("%s: the reward outage is over waited_s=%.0f", self._place, waited_s)


def missing_of(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Decides, of what all processes say, whether they wait.

    Args:
        answers: "missing", see `Outage.missing`, and "stop", why a process wants to end, or "".

    Returns:
        "missing": processes that have no rewards; "cause": of the first of them; "stop": a process
        that wants to end and its reason, or None.
    """
    missing = [process for process, answer in enumerate(answers) if answer["missing"]]
    stops = [[process, answer["stop"]] for process, answer in enumerate(answers) if answer["stop"]]
    return {
        "missing": missing,
        "cause": answers[missing[0]]["missing"] if missing else "",
        "stop": stops[0] if stops and missing else None,
    }
