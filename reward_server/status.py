# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions to gRPC statuses: the only place that makes a non-OK status."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from reward_server.batch import WorkersUnavailable
from reward_server.messages import RequestError
from reward_server.printable import sendable

if TYPE_CHECKING:
    from google.protobuf.message import Message

DOMAIN = "shardward"
RETRY_AFTER_S = 1
logger = logging.getLogger(__name__)


class Draining(Exception):  # noqa: N818 - named for the state
    """The process takes no new calls because it is about to stop."""


class QueueFull(Exception):  # noqa: N818 - named for the state
    """Too much is being scored or waits for it; the call may come again."""


class TokenizerMismatch(Exception):  # noqa: N818 - named for the state
    """The caller has another tokenizer.

    Attributes:
        reason: TOKENIZER_MISMATCH.
        expected: fingerprint of this process's tokenizer.
        got: fingerprint of the caller's.
    """

    reason = "TOKENIZER_MISMATCH"

    def __init__(self, *, expected: str, got: str) -> None:
        super().__init__(
            f"`tokenizer_fingerprint` must be {expected[:12]}, got {got[:12]}."
            " Start this server with the trainer's tokenizer."
        )
        self.expected = expected
        self.got = got


class RewardFnsChanged(Exception):  # noqa: N818 - named for the state
    """The caller's run began with other reward functions than this process has.

    Attributes:
        reason: REWARD_FNS_CHANGED.
        expected: digest of this process's functions.
        got: digest of those that the caller began with.
    """

    reason = "REWARD_FNS_CHANGED"

    def __init__(self, *, expected: str, got: str, cause: str = "") -> None:
        super().__init__(
            f"`reward_fns_digest` must be {expected}, got {got}:"
            f" {cause or 'the reward functions here are not those that the caller began with'}."
        )
        self.expected = expected
        self.got = got


class Unauthenticated(Exception):  # noqa: N818 - named for the state
    """The caller did not show this process's token.

    Attributes:
        reason: TOKEN_MISSING or TOKEN_WRONG.
    """

    def __init__(self, *, missing: bool) -> None:
        got = "none" if missing else "another"
        super().__init__(
            f"`authorization` must be the token of this server, got {got}."
            " Pass --reward-token-file (grpo-train), --workers-token-file (serve) or"
            " --token-file (check)."
        )
        self.reason = "TOKEN_MISSING" if missing else "TOKEN_WRONG"


# What may be tried again, after a delay.
_LATER: dict[type[BaseException], tuple[int, str]] = {
    WorkersUnavailable: (code_pb2.UNAVAILABLE, "WORKERS_UNAVAILABLE"),
    Draining: (code_pb2.UNAVAILABLE, "DRAINING"),
    QueueFull: (code_pb2.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
}


def _status(
    code: int, reason: str, message: str, *details: Message, metadata: dict[str, str] | None = None
) -> status_pb2.Status:
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata or {})
    packed = []
    for detail in (info, *details):
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code, message=message, details=packed)


def from_exception(error: BaseException) -> status_pb2.Status:
    """Chooses the status of a failed call; what is not known is INTERNAL."""
    text = sendable(str(error))
    if isinstance(error, RequestError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=text)
        bad = error_details_pb2.BadRequest(field_violations=[violation])
        return _status(
            code_pb2.INVALID_ARGUMENT, "BAD_REQUEST", text, bad, metadata={"field": error.field}
        )
    if isinstance(error, TokenizerMismatch | RewardFnsChanged):
        both = {"expected": error.expected, "got": error.got}
        return _status(code_pb2.FAILED_PRECONDITION, error.reason, text, metadata=both)
    if isinstance(error, Unauthenticated):
        return _status(code_pb2.UNAUTHENTICATED, error.reason, text)
    if isinstance(error, WorkersUnavailable | Draining | QueueFull):
        code, reason = _LATER[type(error)]
        delay = duration_pb2.Duration(seconds=RETRY_AFTER_S)
        return _status(code, reason, text, error_details_pb2.RetryInfo(retry_delay=delay))
    if isinstance(error, TimeoutError):
        return _status(code_pb2.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", text or "out of time")
    return _status(code_pb2.INTERNAL, "INTERNAL", "internal error; see the log of the server")


async def abort(
    context: grpc.aio.ServicerContext[object, object], error: BaseException, *, caller: str
) -> NoReturn:
    """Ends a call with the status of an exception, and says so in a line of the log.

    Args:
        context: of the call.
        error: why.
        caller: who called, for the log.
    """
    status = from_exception(error)
    _log(status, error, caller)
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("unreachable") from error


def _log(status: status_pb2.Status, error: BaseException, caller: str) -> None:
    # Not its text, which may quote a value of the row.
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    field = error.field if isinstance(error, RequestError) else "-"
    if status.code == code_pb2.INTERNAL:
        logger.error("call failed caller=%s", caller, exc_info=error)
    elif status.code == code_pb2.DEADLINE_EXCEEDED:
        logger.warning("call failed caller=%s reason=%s: %s", caller, info.reason, status.message)
    elif isinstance(error, WorkersUnavailable | Draining | QueueFull):
        logger.info("call put off caller=%s reason=%s", caller, info.reason)
    else:
        logger.warning("call refused caller=%s reason=%s field=%s", caller, info.reason, field)
