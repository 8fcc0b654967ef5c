# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Agreement of all processes on the host, before they enter a collective.

A process that enters a collective alone hangs, and so do all others, without an error. So at
each such place every process says where it is and how it went; process 0 decides, and all get the
one verdict. Exchanges of a job are numbered, whoever asks for them. An error of one process
between two exchanges becomes the verdict of the next one, which can't take place without it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from trainer import coordination
from trainer.coordination import Coordination
from trainer.errors import ProcessesDisagree
from trainer.exchange import AGREED, Values, Verdict, Wait, in_words, key_of, read, settle

logger = logging.getLogger(__name__)

# How soon a process sees that another one has failed.
_LOOK_S = 1.0
# How long it may then take to come to its next exchange.
_GRACE_S = 3.0
# A collective that breaks does so on all processes within moments.
_LOST_S = 5.0
_POLL_S = 0.1


def _all(values: Values) -> Any:
    return values


class Agreement:
    """Lets all processes exchange small values and decide on them, within a bound.

    Every process must make the same exchanges in the same order. With one process they cost
    nothing.

    Attributes:
        process_index: this process.
        process_count: number of processes.
    """

    def __init__(self, *, timeout_s: float, job: Coordination | None = None) -> None:
        """Connects to the coordination service.

        Args:
            timeout_s: longest wait for the other processes, in seconds, > 0.
            job: where the values travel; None for the job of this process.

        Raises:
            ValueError: timeout_s is not positive.
            RuntimeError: there are several processes but no coordination service.
        """
        if not timeout_s > 0:
            raise ValueError(f"`agreement_timeout_s` must be > 0 seconds, got {timeout_s}.")
        self._job = coordination.own() if job is None else job
        self.process_index = self._job.process_index
        self.process_count = self._job.process_count
        self.timeout_s = timeout_s
        self._deferred: Exception | None = None

    def exchange(
        self,
        place: str,
        value: dict[str, Any],
        decide: Callable[[Values], Any] = _all,
        *,
        error: Exception | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Decides on the values of all processes, or raises the same on every process.

        Args:
            place: where the program is; must be the same on all processes.
            value: plain values of this process.
            decide: makes the decision from the values, by process index; called on process 0
                alone. It must be plain, too, and small where there are many processes. What it
                raises is raised on all.
            error: what went wrong on this process, or None.
            timeout_s: another bound for this exchange, in seconds.

        Returns:
            The decision; the values themselves without `decide`.

        Raises:
            ProcessesDisagree: a process failed, did not come within the bound, or is at another
                place. With one process its error is raised as it is.
            RewardError: what `decide` raised.
        """
        error, self._deferred = error or self._deferred, None
        job = self._job
        if job.client is None:
            if error is not None:
                raise error
            return decide([value])
        number, job.number = job.number, job.number + 1
        text = None if error is None else in_words(error)
        mine = json.dumps({"place": place, "value": value, "error": text})
        job.put(f"{key_of(number)}/from/{self.process_index}", mine)
        wait = Wait(job, number, place, timeout_s or self.timeout_s)
        verdict = wait.collect(mine, decide) if self.process_index == 0 else wait.verdict()
        raised = verdict.error(self.process_index)
        if raised is not None:
            job.broken = True
            raise raised from error
        return verdict.decision

    def all_ok(self, place: str, error: Exception | None) -> None:
        """Goes on if no process has an error; see `exchange`."""
        self.exchange(place, {}, lambda _: None, error=error)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Keeps an error of this process for the next exchange.

        Until then it goes on to the collectives of the others, who would wait for it there. With
        one process the error is raised at once.
        """
        try:
            yield
        except jax.errors.JaxRuntimeError:  # a collective that broke: nobody is in it any more
            raise
        except Exception as error:
            if self._job.client is None:
                raise
            logger.exception("failed on this process; the others will know at the next exchange")
            self._deferred = self._deferred or error

    @contextlib.contextmanager
    def guarded(self, place: Callable[[], str]) -> Iterator[None]:
        """Sees to it that no process is left behind, whatever is raised in the block on one.

        An error that the others do not know is published, so that those who wait raise it, too. A
        process that does not come to its next exchange, since it is in a collective with the one
        that failed, is ended.

        Args:
            place: says where the program is.

        Raises:
            ProcessesDisagree: names the process that failed, and its error.
        """
        job = self._job
        if job.client is None:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(job, place, over), name="agreement-watch", daemon=True
        )
        watcher.start()
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            raise self._lost(place(), error) from error
        except BaseException as error:
            if hasattr(error, AGREED):
                raise
            text = f"process {self.process_index} failed at {place()!r}: {in_words(error)}"
            disagree = self._publish(text, "PROCESS_FAILED")
            if isinstance(error, Exception):
                raise disagree from error
            raise
        finally:
            over.set()
            watcher.join()

    def _publish(self, text: str, reason: str) -> Exception:
        """Makes an error of this process the verdict of the next exchange."""
        job = self._job
        job.broken = True
        number, job.number = job.number, job.number + 1
        verdict = Verdict(kind=ProcessesDisagree.__name__, message=text, reason=reason)
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # process 0 is gone
            verdict = settle(job, number, verdict)
        return verdict.error(self.process_index) or ProcessesDisagree(text, reason=reason)

    def _lost(self, place: str, error: Exception) -> Exception:
        """Finds out who is gone, or has failed, after a collective failed on this process."""
        cause = str(error).partition("\n")[0]
        if "RESOURCE_EXHAUSTED" in cause:  # memory of this process
            text = f"process {self.process_index} failed at {place!r}: {in_words(error)}"
            return self._publish(text, "PROCESS_FAILED")
        try:
            known = self._job.peek(f"{key_of(self._job.number)}/verdict")
            if known is not None:
                return self._publish("", "")
            missing = self._silent()
        except jax.errors.JaxRuntimeError:
            missing = [0]
        who = f"processes {missing} do not answer" if missing else "all processes answer"
        return self._publish(
            f"a collective failed at {place!r} on process {self.process_index}; {who}."
            f" Look at the logs of the others. JAX says: {cause}",
            "COLLECTIVE_FAILED",
        )

    def _silent(self) -> list[int]:
        """Processes that do not say within a moment that this collective has failed for them."""
        key = f"{key_of(self._job.number)}/lost"
        self._job.put(f"{key}/{self.process_index}", "")
        deadline = time.monotonic() + _LOST_S
        while True:
            answered = self._job.folder(key)
            missing = [p for p in range(self.process_count) if str(p) not in answered]
            known = self._job.peek(f"{key_of(self._job.number)}/verdict")
            if not missing or known is not None or time.monotonic() > deadline:
                return missing
            time.sleep(_POLL_S)


def _watch(job: Coordination, place: Callable[[], str], over: threading.Event) -> None:
    """Ends this process if another one has failed and it does not come to hear of it."""
    while not over.wait(_LOOK_S):
        number = job.number
        try:
            text = job.peek(f"{key_of(number)}/verdict")
        except jax.errors.JaxRuntimeError:
            return  # Process 0 is gone: JAX ends this one.
        # A verdict without this process: the exchange can't take place any more.
        if text is None or over.wait(_GRACE_S) or job.number != number:
            continue
        logger.critical(
            "%s Process %d is at %r, in a collective that can't end, and is ended.",
            read(text).message,
            job.process_index,
            place(),
        )
        coordination.end_process(1)


@atexit.register
def _at_exit() -> None:
    """Tells those who wait for this process that its program ends; a job that failed is left."""
    job = coordination.current()
    if job is None:
        return
    error = getattr(sys, "last_value", None)
    how = f"ended with {in_words(error)}" if error is not None else "ended"
    verdict = Verdict(
        kind=ProcessesDisagree.__name__,
        message=f"process {job.process_index} {how} while others went on.",
        reason="PROCESS_ENDED",
    )
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        settle(job, job.number, verdict)
    if job.broken or error is not None:
        # A device may wait for ever for the processes that are gone.
        faulthandler.dump_traceback_later(3 * coordination.LEAVE_S, exit=True)
        coordination.leave()


class Attempt:
    """The value of a call or the exception it raised, kept until all processes know."""

    def __init__(self, call: Callable[[], Any]) -> None:
        """Makes the call."""
        self.value: Any = None
        self.error: Exception | None = None
        try:
            self.value = call()
        except Exception as error:  # noqa: BLE001 - raised on all processes after they agree
            self.error = error

    def get(self) -> Any:
        """The value, or raises what the call raised."""
        if self.error is not None:
            raise self.error
        return self.value


def check_equal(what: str, values: list[Any]) -> None:
    """Checks that all processes gave the same value.

    Raises:
        ProcessesDisagree: with both values.
    """
    for process, value in enumerate(values):
        if value != values[0]:
            raise ProcessesDisagree(
                f"{what} must be equal on all processes: process 0 has {values[0]}, process"
                f" {process} has {value}.",
                reason="PROCESSES_DISAGREE",
            )
