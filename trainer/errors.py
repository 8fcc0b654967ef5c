# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the reward path, and how a gRPC status becomes one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
from shardward import addresses
from shardward.status import status_details

from trainer.credentials import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.credentials import ClientCredentials

# What gRPC says under INTERNAL and UNKNOWN when a connection breaks in mid-call.
_BROKEN = re.compile(
    r"RST_STREAM|stream removed|socket closed|connection reset|broken pipe|GOAWAY", re.IGNORECASE
)

REWARD_FNS_CHANGED = "REWARD_FNS_CHANGED"
SOCKET_OWNER = "SOCKET_OWNER"
_REMEDIES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        ". Lower call_bytes, or shorten the longest row and its columns."
    ),
}


_MOST_CHARACTERS = 1000


def one_line(text: str) -> str:
    r"""What another process says, fit for a log: of no control characters and bounded.

    Example:
        >>> one_line("refused:\n\x1b[2J")
        'refused:  [2J'
    """
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS - 3]}..."
    return "".join(c if c.isprintable() else " " for c in text)


class RewardError(Exception):
    """Rewards could not be had.

    Attributes:
        reason: UPPER_SNAKE word for programs, from the server where it gave one.
        request_id: id of the call, or "".
        outage: whether a machine or its network is the cause, so that the same rows may have
            rewards later: nothing answers, no worker can score, or the time ran out.
    """

    def __init__(
        self, message: str, *, reason: str = "", request_id: str = "", outage: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.request_id = request_id
        self.outage = outage


class InvalidRequest(RewardError):  # noqa: N818 - the boundary that failed, as gRPC names it
    """The server refused the request as it stands: shape, ids, columns, tokenizer or token."""


class Unavailable(RewardError):  # noqa: N818
    """No reward server answers at the endpoint, or the socket there is another user's."""


class DeadlineExceeded(RewardError):  # noqa: N818
    """The rewards did not come within the time allowed."""


class ScoringFailed(RewardError):  # noqa: N818
    """The answer can't be used: rows are missing, in another order or not finite."""


class ProcessesDisagree(RewardError):  # noqa: N818
    """The processes of the job are not at the same place, or one of them failed."""


def is_retryable(error: grpc.RpcError) -> bool:
    """Whether a call may be sent again.

    UNAVAILABLE, a server that stops (CANCELLED), a broken connection, or too busy with a delay.
    """
    code, details = error.code(), status_details(error)
    if explain(error.details() or "", ""):  # a handshake that can't succeed
        return False
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return True
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        return not details.reason and _BROKEN.search(error.details() or "") is not None
    return code == grpc.StatusCode.RESOURCE_EXHAUSTED and details.retry_after_s is not None


def cause(error: grpc.RpcError) -> str:
    """Says in a few words why a call failed."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and not status_details(error).reason:
        return "no answer"
    text = one_line(error.details() or error.code().name)
    # With a reason they are the server's own words.
    return text if status_details(error).reason else addresses.cause(text)


def from_rpc_error(
    error: grpc.RpcError,
    *,
    endpoint: str,
    request_id: str,
    row_ids: Sequence[int],
    attempts: int,
    waited_s: float,
    earlier: str,
    credentials: ClientCredentials,
) -> RewardError:
    """Turns the status of a call into one of this module's errors.

    Args:
        error: the failed call.
        endpoint: address it went to.
        request_id: its id.
        row_ids: global ids of its rows; empty when the server was only asked what it is.
        attempts: how often it was sent.
        waited_s: seconds since it was first sent.
        earlier: cause of the failure before, or "".
        credentials: what was shown to the server.
    """
    code, text, details = error.code(), cause(error), status_details(error)
    hopeless = explain(error.details() or "", endpoint)
    kind: type[RewardError] = RewardError
    rows = f" (rows {row_ids[0]}..{row_ids[-1]}, request {request_id})" if row_ids else ""
    where = f"reward server at {endpoint}{rows}"
    tried = f"{attempts} attempt{'s' * (attempts != 1)} in {waited_s:.1f} s"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED and row_ids:
        kind = DeadlineExceeded
        remedy = "Raise timeout_s or add workers"
        if earlier:
            tried += f"; the one before failed: {earlier}"
        if earlier and not details.reason:
            remedy = f"See whether it can be reached (reward-server check {endpoint})"
        message = f"{where} gave no rewards in time: {text} ({tried}). {remedy}."
    elif code == grpc.StatusCode.UNIMPLEMENTED:
        kind = Unavailable
        message = (
            f"{where} is another gRPC service: {text}."
            " Correct --reward-endpoint; a reward worker has another address than a reward server."
        )
    elif (
        code == grpc.StatusCode.DEADLINE_EXCEEDED
        or hopeless
        or (is_retryable(error) and not details.reason)
    ):
        kind = Unavailable
        remedy = (
            hopeless
            or credentials.guess(error.details() or "")
            or addresses.remedy(endpoint, earlier or text, setting="--reward-endpoint")
        )
        if code == grpc.StatusCode.DEADLINE_EXCEEDED and earlier:
            text = f"{text}; before that: {earlier}"
        message = f"{where} can't be reached: {text} ({tried}). {remedy}"
    elif is_retryable(error):
        kind = Unavailable
        message = f"{where} can't score: {text} ({tried}). See its log."
    elif code in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    ):
        kind = InvalidRequest
        message = f"{where} refused the request: {text}{_REMEDIES.get(code, '')}"
    else:
        message = f"{where} failed: {text}"
    late = code == grpc.StatusCode.DEADLINE_EXCEEDED
    return kind(
        message,
        reason=details.reason or code.name,
        request_id=request_id,
        outage=bool(row_ids) and (late or is_retryable(error)),
    )
