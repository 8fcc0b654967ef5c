# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""One call to the reward server: sent, waited for, sent again until its deadline."""

from __future__ import annotations

import dataclasses
import logging
import math
import random
import time
from typing import TYPE_CHECKING, Any

import grpc
from shardward.status import status_details
from shardward.targets import Refused

from trainer.connection import Closed, Connection
from trainer.errors import (
    SOCKET_OWNER,
    RewardError,
    Unavailable,
    cause,
    from_rpc_error,
    is_retryable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

NOTICE_S = 10.0
_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0
_LAST_TRY_S = 0.1


def countdown(timeout_s: float | None) -> Callable[[], float | None]:
    """Makes a function that says how many seconds are left from now on; None stays None."""
    if timeout_s is None:
        return lambda: None
    until = time.monotonic() + timeout_s
    return lambda: max(0.0, until - time.monotonic())


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One request and its retries, all with the same bytes. It is sent when it is made.

    Attributes:
        connection: to the server.
        method: name of a method of the service.
        request: what to send.
        timeout_s: seconds from now for an answer, retries included.
        request_id: its id, or "".
        row_ids: global ids of its rows; empty if it has none.
    """

    connection: Connection
    method: str
    request: Any
    timeout_s: float
    request_id: str = ""
    row_ids: Sequence[int] = ()
    _started: float = dataclasses.field(init=False)
    _noticed: float = dataclasses.field(init=False)
    _event: str = dataclasses.field(init=False, default="")
    _attempts: int = dataclasses.field(init=False, default=0)
    _failure: str = dataclasses.field(init=False, default="")
    _future: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self) -> None:
        """Sends the request."""
        self._started = self._noticed = time.monotonic()
        self._send()

    def result(self, timeout_s: float | None = None) -> Any:
        """Waits for the answer; sends the request again where that can help.

        Args:
            timeout_s: longest wait in seconds; None waits for the end of the call.

        Raises:
            RewardError: there is no answer, or the client was closed.
            TimeoutError: there is neither answer nor error yet; the call goes on.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        backoff_s = _FIRST_BACKOFF_S
        while True:
            wait_s = min(NOTICE_S, max(0.0, until - time.monotonic()))
            try:
                return self._future.result(timeout=wait_s)
            except grpc.FutureTimeoutError:
                self._notice("waiting for an answer")
            except grpc.RpcError as error:
                if self.connection.closed.is_set():
                    raise self._closed() from None
                delay_s = status_details(error).retry_after_s
                latest_s = self._left_s() - _LAST_TRY_S
                if delay_s is None:
                    delay_s = min(backoff_s * random.uniform(0.5, 1.5), latest_s)  # noqa: S311
                else:
                    delay_s = max(delay_s, _FIRST_BACKOFF_S)
                if not is_retryable(error) or latest_s <= 0 or delay_s > latest_s:
                    raise self._error(error) from error
                self._failure = cause(error)
                self._notice(f"retrying after {error.code().name}")
                self.connection.closed.wait(delay_s)
                backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
                self._send()
            if time.monotonic() >= until:
                raise TimeoutError(f"no answer within {timeout_s:g} s, and no error yet.")

    def retry(self, timeout_s: float) -> None:
        """Gives the call more time, and sends the same request again unless it has an answer.

        Args:
            timeout_s: seconds from now for an answer.
        """
        self.timeout_s = time.monotonic() - self._started + timeout_s
        before = self._future
        if before.done() and before.code() == grpc.StatusCode.OK:
            return
        self._send()
        before.cancel()  # it has the deadline of before

    def _send(self) -> None:
        self._attempts += 1
        try:
            self._future = self.connection.send(
                self.method, self.request, timeout_s=max(self._left_s(), 0.001)
            )
        except Closed:
            raise self._closed() from None
        except Refused as error:
            raise Unavailable(
                f"the reward server at {self.connection.endpoint} was not called: {error}",
                reason=SOCKET_OWNER,
                request_id=self.request_id,
            ) from error

    def _closed(self) -> RewardError:
        return RewardError(
            f"the call {self.request_id or self.method} to the reward server at"
            f" {self.connection.endpoint} ended: the client was closed."
            " Close it after the last rewards.",
            reason="CLIENT_CLOSED",
            request_id=self.request_id,
        )

    def _left_s(self) -> float:
        return self._started + self.timeout_s - time.monotonic()

    def _error(self, error: grpc.RpcError) -> RewardError:
        return from_rpc_error(
            error,
            endpoint=self.connection.endpoint,
            request_id=self.request_id,
            row_ids=self.row_ids,
            attempts=self._attempts,
            waited_s=time.monotonic() - self._started,
            earlier=self._failure,
            credentials=self.connection.credentials,
        )

    def _notice(self, event: str) -> None:
        now = time.monotonic()
        # What is new in mid-training is worth a line at once; a server that is to start is not.
        new = event != self._event and len(self.row_ids) > 0
        if not new and now - self._noticed < NOTICE_S:
            return
        self._noticed, self._event = now, event
        if not self.row_ids:
            logger.warning(
                "waiting for the reward server endpoint=%s waited_s=%.0f left_s=%.0f failure=%s",
                self.connection.endpoint,
                now - self._started,
                self._left_s(),
                self._failure or "none",
            )
            return
        logger.warning(
            "%s endpoint=%s request_id=%s rows=%s waited_s=%.0f left_s=%.0f attempts=%d failure=%s",
            event,
            self.connection.endpoint,
            self.request_id,
            f"{self.row_ids[0]}..{self.row_ids[-1]}",
            now - self._started,
            self._left_s(),
            self._attempts,
            self._failure or "none",
        )
