# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the reward path, and how a gRPC status becomes one of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

if TYPE_CHECKING:
    from collections.abc import Sequence


class RewardError(Exception):
    """Rewards could not be had.

    Attributes:
        reason: UPPER_SNAKE word for programs, from the server where it gave one.
        request_id: id of the call, or "".
    """

    def __init__(self, message: str, *, reason: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.request_id = request_id


class InvalidRequest(RewardError):  # noqa: N818 - the boundary that failed, as gRPC names it
    """The server refused the request as it stands: shape, ids, columns or tokenizer."""


class Unavailable(RewardError):  # noqa: N818
    """No reward server answers at the endpoint."""


class DeadlineExceeded(RewardError):  # noqa: N818
    """The rewards did not come within the time allowed."""


class ScoringFailed(RewardError):  # noqa: N818
    """The answer can't be used: rows are missing, in another order or not finite."""


class ProcessesDisagree(RewardError):  # noqa: N818
    """The processes of the job are not at the same place, or one of them failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class StatusDetails:
    """What a non-OK status says beyond its code.

    Attributes:
        reason: reason of google.rpc.ErrorInfo, or "".
        retry_after_s: delay of google.rpc.RetryInfo in seconds, or None if there is none.
    """

    reason: str
    retry_after_s: float | None


def status_details(error: grpc.RpcError) -> StatusDetails:
    """Reads ErrorInfo and RetryInfo from the status of a failed call."""
    reason, retry_after_s = "", None
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        status = None
    for detail in status.details if status else ():
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            reason = info.reason
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
    return StatusDetails(reason, retry_after_s)


def is_retryable(error: grpc.RpcError) -> bool:
    """Whether a call may be sent again: UNAVAILABLE, or too busy with a delay given."""
    code = error.code()
    if code == grpc.StatusCode.UNAVAILABLE:
        return True
    return (
        code == grpc.StatusCode.RESOURCE_EXHAUSTED
        and status_details(error).retry_after_s is not None
    )


def from_rpc_error(
    error: grpc.RpcError, *, endpoint: str, request_id: str, row_ids: Sequence[int]
) -> RewardError:
    """Turns the status of a call into one of this module's errors.

    Args:
        error: the failed call.
        endpoint: address it went to.
        request_id: its id.
        row_ids: global ids of its rows.
    """
    rows = f"rows {row_ids[0]}..{row_ids[-1]}" if row_ids else "no rows"
    code, text = error.code(), error.details()
    reason = status_details(error).reason or code.name
    where = f"reward server at {endpoint} ({rows})"
    if code == grpc.StatusCode.UNAVAILABLE:
        message = (
            f"{where} can't be reached: {text}. "
            f"Start it (reward-server serve --listen {endpoint} ...) or correct --reward-endpoint."
        )
        return Unavailable(message, reason=reason, request_id=request_id)
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        message = f"{where} gave no rewards in time: {text}. Raise timeout_s or add workers."
        return DeadlineExceeded(message, reason=reason, request_id=request_id)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        if is_retryable(error):
            message = f"{where} is too busy: {text}. Raise timeout_s or add workers."
            return Unavailable(message, reason=reason, request_id=request_id)
        text = f"{text}. Lower call_bytes, or shorten the longest row and its columns."
    if code in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ):
        return InvalidRequest(
            f"{where} refused the request: {text}", reason=reason, request_id=request_id
        )
    return RewardError(f"{where} failed: {text}", reason=reason, request_id=request_id)
