# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a failed call says beyond its code. Here since trainers and servers both make calls."""

from __future__ import annotations

import dataclasses

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status


@dataclasses.dataclass(frozen=True, slots=True)
class StatusDetails:
    """What a non-OK status says beyond its code.

    Attributes:
        reason: reason of google.rpc.ErrorInfo, or "".
        retry_after_s: delay of google.rpc.RetryInfo in seconds, not below 0, or None.
        is_ours: whether there are details at all: gRPC itself and proxies send none.
    """

    reason: str = ""
    retry_after_s: float | None = None
    is_ours: bool = False


def status_details(error: grpc.RpcError) -> StatusDetails:
    """Reads ErrorInfo and RetryInfo from the status of a failed call; none if they are broken."""
    reason, retry_after_s = "", None
    try:
        status = rpc_status.from_call(error)
        for detail in status.details if status else ():
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                reason = info.reason
            elif detail.Unpack(retry):
                delay = retry.retry_delay
                retry_after_s = max(0.0, delay.seconds + delay.nanos / 1e9)
    except (ValueError, DecodeError):
        return StatusDetails()
    return StatusDetails(reason, retry_after_s, status is not None)
