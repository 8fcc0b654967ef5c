# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""One exchange between processes: each says how it went, process 0 decides, all get the verdict.

A value is a key of its own, the verdict is one key for all. The first verdict holds: that of
process 0, of a process whose wait is over, or of one that failed and does not come.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainer import errors
from trainer.coordination import Coordination
from trainer.errors import ProcessesDisagree, RewardError

logger = logging.getLogger(__name__)

NOTICE_S = 10.0
# How soon process 0, while it waits for a value, looks whether there is a verdict.
_LOOK_S = 1.0
_PREFIX = "shardward/agreement"
# Fewer values than these are read one by one.
_FEW = 16

Values = list[dict[str, Any]]

# Set on errors that all processes raise: whether all of them had come to the exchange.
AGREED = "_shardward_agreed"


def raised_together(error: BaseException) -> bool:
    """Whether all processes raise this error at the same exchange, so that they can go on."""
    return getattr(error, AGREED, False) is True


@contextlib.contextmanager
def raised_by_all() -> Iterator[None]:
    """Marks what is raised in the block as raised by all processes, of values that all have."""
    try:
        yield
    except Exception as error:
        setattr(error, AGREED, True)
        raise


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an exchange, the same for all.

    Attributes:
        decision: what was decided.
        kind: class of the error to raise, or None.
        message: of the error.
        reason: of the error.
        everyone: whether all processes came.
        late: processes that did not, for an error of the bound.
    """

    decision: Any = None
    kind: str | None = None
    message: str = ""
    reason: str = ""
    everyone: bool = False
    late: Sequence[int] = ()

    def text(self) -> str:
        """Itself as JSON; what has its default is left out, as it travels to all processes."""
        # Not `asdict`, which makes keys of the items of a Counter.
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps({n: v for n, v in fields.items() if v or n == "decision"})

    def error(self, process: int) -> Exception | None:
        """The error that a process raises."""
        if self.kind is None:
            return None
        kind: type[RewardError] = getattr(errors, self.kind)
        message, reason = self.message, self.reason
        if process in self.late:
            message = f"process {process} came after others had given up waiting for it: {message}"
            reason = "PROCESS_LATE"
        error = kind(message, reason=reason)
        setattr(error, AGREED, self.everyone)
        return error


def key_of(number: int) -> str:
    """The key below which an exchange has its values and its verdict."""
    return f"{_PREFIX}/{number}"


def in_words(error: BaseException) -> str:
    """An error with the name of its class."""
    return f"{type(error).__name__}: {error}"


def settle(job: Coordination, number: int, verdict: Verdict) -> Verdict:
    """Gives an exchange its verdict, unless it has one; returns the one that holds."""
    key = f"{key_of(number)}/verdict"
    if job.put(key, verdict.text()):
        return verdict
    return read(job.peek(key) or "{}")


def read(text: str) -> Verdict:
    """Reads what `Verdict.text` wrote."""
    return Verdict(**json.loads(text))


class Wait:
    """One exchange, seen by a process that has said how it went."""

    def __init__(self, job: Coordination, number: int, place: str, timeout_s: float) -> None:
        self._job = job
        self._key = key_of(number)
        self._number = number
        self._place = place
        self._timeout_s = timeout_s
        self._start = self._noticed = time.monotonic()

    def collect(self, mine: str, decide: Callable[[Values], Any]) -> Verdict:
        """Waits for the values of all and decides; for process 0."""
        texts = {0: mine}
        while missing := [p for p in range(self._job.process_count) if p not in texts]:
            text = self._job.get(f"{self._key}/from/{missing[0]}", min(_LOOK_S, self._left_s()))
            if text is not None:
                texts[missing[0]] = text
            elif self._job.peek(f"{self._key}/verdict") is not None or self._left_s() <= 0:
                return self._give_up()
            else:
                self._notice()
            if text is None or len(missing) > _FEW:
                arrived = self._job.folder(f"{self._key}/from")
                texts.update({int(process): text for process, text in arrived.items()})
        said = [json.loads(texts[process]) for process in range(self._job.process_count)]
        verdict = settle(self._job, self._number, _judged(self._place, said, decide))
        if self._number and verdict.everyone:
            # Everybody has read the verdict before this one, or would not be here.
            self._job.delete(key_of(self._number - 1))
        return verdict

    def verdict(self) -> Verdict:
        """Waits for the decision of process 0, or what keeps it from deciding."""
        key = f"{self._key}/verdict"
        while (text := self._job.get(key, min(NOTICE_S, self._left_s()))) is None:
            if self._left_s() <= 0:
                return self._give_up()
            self._notice()
        return read(text)

    def _left_s(self) -> float:
        return self._start + self._timeout_s - time.monotonic()

    def _missing(self) -> tuple[int, ...]:
        arrived = self._job.folder(f"{self._key}/from")
        return tuple(p for p in range(self._job.process_count) if str(p) not in arrived)

    def _notice(self) -> None:
        now = time.monotonic()
        if now - self._noticed < NOTICE_S - _LOOK_S / 2:
            return
        self._noticed = now
        logger.warning(
            "waiting for processes place=%r waited_s=%.0f timeout_s=%.0f missing=%s",
            self._place,
            now - self._start,
            self._timeout_s,
            list(self._missing()),
        )

    def _give_up(self) -> Verdict:
        missing = self._missing()
        waited_s = time.monotonic() - self._start
        return settle(
            self._job,
            self._number,
            Verdict(
                kind=ProcessesDisagree.__name__,
                message=f"processes {list(missing)} did not come to {self._place!r} within"
                f" {waited_s:.0f} s (process {self._job.process_index} waited)."
                " Look at their logs.",
                reason="PROCESS_MISSING",
                late=missing,
            ),
        )


def _judged(place: str, said: Values, decide: Callable[[Values], Any]) -> Verdict:
    """Decides on what all processes said."""
    kind = ProcessesDisagree.__name__
    for process, one in enumerate(said):
        if one["place"] != place:
            return Verdict(
                kind=kind,
                message=f"process 0 is at {place!r}, process {process} at {one['place']!r}."
                " All processes must make the same calls in the same order.",
                reason="PROCESSES_DISAGREE",
                everyone=True,
            )
    failed = {process: one["error"] for process, one in enumerate(said) if one["error"]}
    if failed:
        process, first = next(iter(failed.items()))
        more = f" ({len(failed)} processes failed: {sorted(failed)})" if len(failed) > 1 else ""
        message = f"process {process} failed at {place!r}{more}: {first}"
        return Verdict(kind=kind, message=message, reason="PROCESS_FAILED", everyone=True)
    try:
        # As it will arrive; what can't travel is an error of all, too.
        decision = json.loads(json.dumps(decide([one["value"] for one in said])))
    except Exception as error:  # noqa: BLE001 - raised on all processes
        if isinstance(error, RewardError):
            name, message, reason = type(error).__name__, str(error), error.reason
        else:
            name, message, reason = kind, f"{place}: {in_words(error)}", "PROCESSES_DISAGREE"
        return Verdict(kind=name, message=message, reason=reason, everyone=True)
    return Verdict(decision=decision, everyone=True)
