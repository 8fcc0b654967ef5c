# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of rows without a reward: each process says what it has, all decide the same.

Pure: the values travel by `trainer.agreement`, the decision depends on nothing else.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from trainer.codec import RowFailure, RowRewards
from trainer.errors import ScoringFailed, one_line

MASK, ABORT, VALUE = "mask", "abort", "value="
_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 200
_OWN = "the servers' own processes"
# The causes that a process tells the others about, and that are logged for a step.
_MOST_CAUSES = 8
# What a function raised, as `reward_server.user_errors.describe` writes it: "TYPE: TEXT (PLACE)".
_RAISED = re.compile(r"(?P<type>\w+)(:.*?)?(?P<place> \(line \d+ of [\w.-]{1,60}\))?", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """What to do about rows without a reward.

    Attributes:
        on_failed_row: "mask": the row gets advantage 0 and leaves the mean and standard deviation
            of its group; "value=X": its total is X; "abort": the run ends on all processes.
        max_failed_fraction: share of a step's rows, in [0, 1]; with more the run ends. A step's
            rows are those of all its sampling calls, an evaluation's those of the whole of it.
    """

    on_failed_row: str = MASK
    max_failed_fraction: float = 0.25

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the setting, the rule and the value.
        """
        if self.on_failed_row not in (MASK, ABORT) and self.value is None:
            raise ValueError(
                f"`on_failed_row` must be mask, abort or value=NUMBER, got {self.on_failed_row!r}."
            )
        if not 0 <= self.max_failed_fraction <= 1:
            raise ValueError(
                f"`max_failed_fraction` must be in [0, 1], got {self.max_failed_fraction}."
            )

    @property
    def value(self) -> float | None:
        """Total of a failed row, or None when it is masked."""
        if not self.on_failed_row.startswith(VALUE):
            return None
        try:
            value = float(self.on_failed_row.removeprefix(VALUE))
        except ValueError:
            return None
        return value if math.isfinite(value) else None


class FailedRows:
    """Rows of a step without a reward, over its sampling calls; equal on all processes.

    How a step is cut into micro-batches must not decide whether a run ends: the share is one of
    the whole step.
    """

    def __init__(self, policy: FailurePolicy) -> None:
        """Takes the policy that judges them."""
        self._policy = policy
        self.start(None)

    def start(self, rows: int | None) -> None:
        """Begins a step.

        Args:
            rows: that it will have, or None if unknown, as in an evaluation.
        """
        self._rows = rows
        self._seen = 0
        self._place = ""
        self._summaries: list[dict[str, Any]] = []

    def add(self, place: str, summary: dict[str, Any]) -> None:
        """Takes the rows of a sampling call; ends the run as soon as it is certain that it must.

        Args:
            place: the step, for the message.
            summary: of the rows of all processes, see `merge`.

        Raises:
            ScoringFailed: with the same message on every process: how many rows failed, why, on
                which workers, and which they were.
        """
        self._place = place
        self._seen += summary["rows"]
        if summary["failed"]:
            self._summaries.append(summary)
        if self._rows is not None:
            self._check(max(self._rows, self._seen))
        elif self._policy.on_failed_row == ABORT:
            self._check(self._seen)

    def finish(self) -> None:
        """Judges the rows of a step that has no more: it may have had fewer than it was to have.

        Raises:
            ScoringFailed: as `add`.
        """
        self._check(self._seen)

    def _check(self, rows: int) -> None:
        summaries = self._summaries
        failed = sum(summary["failed"] for summary in summaries)
        if not failed:
            return
        if self._policy.on_failed_row == ABORT:
            rule = "on_failed_row is abort"
        elif failed > self._policy.max_failed_fraction * rows:
            rule = f"more than max_failed_fraction={self._policy.max_failed_fraction:g}"
        else:
            return
        raise ScoringFailed(
            f"{self._place}: {failed} of {rows} rows have no reward, {rule}."
            f" By reason: {_counts(summaries, 'reasons')}."
            f" By worker: {_counts(summaries, 'workers')}. {_rows(summaries)}",
            reason="ROWS_FAILED",
        )


class Cause(NamedTuple):
    """Why some rows failed, in words that hold no text of the model.

    Attributes:
        status: of the rows.
        reward_fn: the function that failed.
        what: type and line of an exception, or what the server says of any other failure.
        worker: address of the worker, or "-" for the server's own processes.
    """

    status: str
    reward_fn: str
    what: str
    worker: str

    @classmethod
    def of(cls, failure: RowFailure) -> Cause:
        """Leaves out what an exception says: that is the function's own and may quote its row."""
        # Numbers of bytes differ from row to row.
        what = re.sub(r"\d{7,}", "N", failure.message)
        # Also of other statuses: a MemoryError is OOM. The server's own sentences have blanks.
        if raised := _RAISED.fullmatch(what):
            what = f"{raised['type']}{raised['place'] or ''}"
        elif failure.status == "ERROR":
            what = "-"
        return cls(
            failure.status, failure.reward_fn or "-", one_line(_short(what)), failure.worker or "-"
        )


def causes(summaries: Sequence[dict[str, Any]]) -> list[tuple[Cause, int]]:
    """Says why rows of all processes failed, with the number of rows; the most frequent first."""
    total: collections.Counter[Cause] = collections.Counter()
    for summary in summaries:
        for *cause, rows in summary["causes"]:
            total[Cause(*cause)] += rows
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))[:_MOST_CAUSES]


def summarize(rewards: RowRewards | None) -> dict[str, Any]:
    """Says in plain values how a process's rows went."""
    if rewards is None:
        return {"rows": 0, "failed": 0, "reasons": {}, "workers": {}, "causes": [], "first": []}
    failures = rewards.failures
    return {
        "rows": len(rewards.valid),
        "failed": int((~rewards.valid).sum()),
        "reasons": collections.Counter(f.status for f in failures),
        "workers": collections.Counter(f.worker or _OWN for f in failures),
        "causes": [
            [*cause, rows]
            for cause, rows in collections.Counter(map(Cause.of, failures)).most_common(
                _MOST_CAUSES
            )
        ],
        "first": [
            [f.row_id, f"row {f.row_id} {f.status} in {f.reward_fn}: {_short(f.message)}"]
            for f in failures[:_SHOWN_ROWS]
        ],
    }


def merge(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Makes one summary of those of all processes."""
    return {
        "rows": sum(summary["rows"] for summary in summaries),
        "failed": sum(summary["failed"] for summary in summaries),
        "reasons": dict(_add(summaries, "reasons")),
        "workers": dict(_add(summaries, "workers")),
        "causes": [[*cause, rows] for cause, rows in causes(summaries)],
        "first": _first(summaries),
    }


def _add(summaries: Sequence[dict[str, Any]], key: str) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for summary in summaries:
        total.update(summary[key])
    return total


def _counts(summaries: Sequence[dict[str, Any]], key: str) -> str:
    # Sorted by name where counts are equal: the text must not depend on the process.
    items = sorted(_add(summaries, key).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in items) or "unknown"


def _first(summaries: Sequence[dict[str, Any]]) -> list[Any]:
    return sorted(row for summary in summaries for row in summary["first"])[:_SHOWN_ROWS]


def _rows(summaries: Sequence[dict[str, Any]]) -> str:
    return "; ".join(text for _, text in _first(summaries))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
