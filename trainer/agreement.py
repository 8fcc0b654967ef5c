# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Agreement of all processes on the host, before they enter a collective.

A process that enters a collective alone hangs, and so do all others, without an error. So at
each such place every process says where it is and how it went; all get to see all values and
come to the same decision. The values travel through JAX's coordination service, the one behind
`jax.distributed`. It is reached by a private name, in this file alone:
`jax._src.distributed.global_state.client` with `key_value_set`, `key_value_dir_get`,
`key_value_delete` and `wait_at_barrier`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax._src import distributed

from trainer.errors import ProcessesDisagree

logger = logging.getLogger(__name__)

NOTICE_S = 10.0
_PREFIX = "shardward/agreement"
# A collective that breaks does so on all processes within moments.
_LOST_S = 5.0
_POLL_S = 0.1


class Agreement:
    """Lets all processes exchange small values, within a bound.

    Every process must call `exchange` the same number of times in the same order. With one
    process it costs nothing.

    Attributes:
        process_index: this process.
        process_count: number of processes.
    """

    _instances = 0

    def __init__(self, *, timeout_s: float) -> None:
        """Connects to the coordination service.

        Args:
            timeout_s: longest wait for the other processes, in seconds, > 0.

        Raises:
            ValueError: timeout_s is not positive.
            RuntimeError: there are several processes but no coordination service.
        """
        if not timeout_s > 0:
            raise ValueError(f"`agreement_timeout_s` must be > 0 seconds, got {timeout_s}.")
        self.process_index = jax.process_index()
        self.process_count = jax.process_count()
        self._timeout_s = timeout_s
        self._sequence = 0
        # Learners are made in the same order on all processes, so this tells them apart.
        self._prefix = f"{_PREFIX}/{Agreement._instances}"
        Agreement._instances += 1
        self._client: Any = distributed.global_state.client if self.process_count > 1 else None
        if self.process_count > 1 and self._client is None:
            raise RuntimeError(
                "several JAX processes but no coordination service:"
                " call jax.distributed.initialize() first."
            )

    def exchange(
        self, place: str, value: dict[str, Any], *, timeout_s: float | None = None
    ) -> list[dict[str, Any]]:
        """Gives every process the values of all.

        Args:
            place: where the program is; must be the same on all processes.
            value: plain values of this process.
            timeout_s: another bound for this exchange, in seconds.

        Returns:
            The values, by process index.

        Raises:
            ProcessesDisagree: a process did not come within the bound, or is at another place.
        """
        if self._client is None:
            return [value]
        timeout_s = timeout_s or self._timeout_s
        key = f"{self._prefix}/{self._sequence}"
        self._client.key_value_set(
            f"{key}/{self.process_index}", json.dumps({"place": place, "value": value})
        )
        self._wait(key, place, timeout_s)
        arrived = self._arrived(key)
        if self._sequence and self.process_index == 0:
            # Everybody has read the values before these, or would not be here.
            self._client.key_value_delete(f"{self._prefix}/{self._sequence - 1}")
        self._sequence += 1
        others = {p: v["place"] for p, v in arrived.items() if v["place"] != place}
        if others:
            process, other = next(iter(others.items()))
            raise ProcessesDisagree(
                f"process {process} is at {other!r}, process {self.process_index} at {place!r}."
                " All processes must make the same calls in the same order.",
                reason="PROCESSES_DISAGREE",
            )
        return [arrived[p]["value"] for p in range(self.process_count)]

    def _arrived(self, key: str) -> dict[int, dict[str, Any]]:
        pairs = self._client.key_value_dir_get(key)
        return {int(name.rsplit("/", 1)[1]): json.loads(text) for name, text in pairs}

    def _missing(self, key: str) -> list[int]:
        return sorted(set(range(self.process_count)) - set(self._arrived(key)))

    def _wait(self, key: str, place: str, timeout_s: float) -> None:
        done = threading.Event()
        start = time.monotonic()

        def notice() -> None:
            while not done.wait(NOTICE_S):
                logger.warning(
                    "waiting for processes place=%r waited_s=%.0f timeout_s=%.0f missing=%s",
                    place,
                    time.monotonic() - start,
                    timeout_s,
                    self._missing(key),
                )

        thread = threading.Thread(target=notice, name="agreement-notice", daemon=True)
        thread.start()
        try:
            self._client.wait_at_barrier(key.replace("/", "-"), int(timeout_s * 1000))
        except jax.errors.JaxRuntimeError as error:
            missing = self._missing(key)
            if not missing:
                raise ProcessesDisagree(
                    f"process {self.process_index} came to {place!r} after others had given up"
                    " waiting for it. Look at what held it up.",
                    reason="PROCESS_LATE",
                ) from error
            waited_s = time.monotonic() - start
            raise ProcessesDisagree(
                f"processes {missing} did not come to {place!r} within {waited_s:.0f} s"
                f" (process {self.process_index} waited). Look at their logs.",
                reason="PROCESS_MISSING",
            ) from error
        finally:
            done.set()
            thread.join()

    def lost(self, place: str, error: Exception) -> Exception:
        """Finds out who is gone, after a collective has failed on this process.

        Args:
            place: where the program is.
            error: what JAX raised.

        Returns:
            The error to raise: with the processes that do not answer, or the same with one process.
        """
        if self._client is None:
            return error
        key = f"{self._prefix}/lost"
        self._client.key_value_set(f"{key}/{self.process_index}", '{"place": ""}')
        deadline = time.monotonic() + _LOST_S
        while (missing := self._missing(key)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        who = f"processes {missing} do not answer" if missing else "all processes answer"
        cause = str(error).partition("\n")[0]
        return ProcessesDisagree(
            f"a collective failed at {place!r} on process {self.process_index}; {who}."
            f" Look at the logs of the others. JAX says: {cause}",
            reason="COLLECTIVE_FAILED",
        )

    def all_ok(
        self,
        place: str,
        error: Exception | None,
        value: dict[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Exchanges values, or raises on every process if one of them failed.

        Args:
            place: where the program is.
            error: what went wrong on this process, or None.
            value: plain values of this process.
            timeout_s: another bound for this exchange, in seconds.

        Raises:
            ProcessesDisagree: a process failed; the message has its index and its error.
        """
        text = f"{type(error).__name__}: {error}" if error else None
        values = self.exchange(place, {"error": text, "value": value}, timeout_s=timeout_s)
        failed = {p: v["error"] for p, v in enumerate(values) if v["error"]}
        if failed:
            if error is not None and len(failed) == 1 and self.process_count == 1:
                raise error
            process, first = next(iter(failed.items()))
            more = f" ({len(failed)} processes failed: {sorted(failed)})" if len(failed) > 1 else ""
            raise ProcessesDisagree(
                f"process {process} failed at {place!r}{more}: {first}", reason="PROCESS_FAILED"
            ) from error
        return [v["value"] for v in values]


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
