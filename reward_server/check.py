# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a server or worker for its health and for what it is, as its callers would."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from shardward import addresses, targets
from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server.channel import CLIENT_OPTIONS
from reward_server.config import ConfigError
from reward_server.credentials import ClientCredentials

_RETRY_S = 0.1


class Unreachable(Exception):  # noqa: N818 - named for the state
    """Nothing answers there, or not yet; the message says what to do."""


def check(address: str, credentials: ClientCredentials, timeout_s: float) -> str:
    """Describes the server or worker at an address.

    Raises:
        Unreachable: it does not answer in time, or is not serving.
        ConfigError: the address has another form, its socket is another user's, or what is there
            refuses these credentials.
    """
    # Only here may a name stand for several.
    if rule := addresses.broken_rule(address.removeprefix("dns:///")):
        raise ConfigError(f"`ADDR` must be {rule}, got {address!r}.")
    credentials.check_address(address)
    with contextlib.closing(_Calls(address, credentials, timeout_s)) as calls:
        try:
            health = calls.ask(health_pb2_grpc.HealthStub, "Check", health_pb2.HealthCheckRequest())
            info = _info(calls)
        except targets.Refused as error:
            raise ConfigError(f"{address} was not called: {error}") from error
        except grpc.RpcError as error:
            raise _problem(error, address, credentials, timeout_s) from error
    if health.status != health_pb2.HealthCheckResponse.SERVING:
        state = health_pb2.HealthCheckResponse.ServingStatus.Name(health.status)
        raise Unreachable(f"{address} is {state}: {info.problem or 'it is starting or draining'}.")
    return _describe(address, info)


class _Calls:
    """Calls to an address until its time is over."""

    def __init__(self, address: str, credentials: ClientCredentials, timeout_s: float) -> None:
        self._address, self._credentials = address, credentials
        self._deadline = time.monotonic() + timeout_s
        self._tls = credentials.for_channel()
        self._dialler = targets.Dialler(address, self._dial)
        self.close = self._dialler.close

    def _dial(self, target: str) -> grpc.Channel:
        if self._tls is None:
            return grpc.insecure_channel(target, CLIENT_OPTIONS)
        return grpc.secure_channel(target, self._tls, CLIENT_OPTIONS)

    def ask(self, stub: Callable[[grpc.Channel], Any], method: str, request: Any) -> Any:
        """Calls a method of a stub again and again while nothing answers.

        Waiting in gRPC would end without the cause.
        """
        failed: grpc.RpcError | None = None
        while True:
            left = max(self._deadline - time.monotonic(), 0.01)
            call = getattr(stub(self._dialler.channel()), method)
            try:
                return call(request, timeout=left, metadata=self._credentials.metadata)
            except grpc.RpcError as error:
                final = error.code() != grpc.StatusCode.UNAVAILABLE
                if failed and error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise failed from error  # it says more
                hopeless = self._credentials.explain(error.details() or "", self._address)
                if final or left <= _RETRY_S or hopeless:
                    raise
                failed = error
            time.sleep(_RETRY_S)


def _info(calls: _Calls) -> types_pb2.ServiceInfo:
    info: types_pb2.ServiceInfo
    try:
        request = reward_pb2.RewardServiceGetInfoRequest()
        info = calls.ask(reward_pb2_grpc.RewardServiceStub, "GetInfo", request).info
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNIMPLEMENTED:
            raise
        asked = scoring_pb2.ScoringServiceGetInfoRequest()
        info = calls.ask(scoring_pb2_grpc.ScoringServiceStub, "GetInfo", asked).info
    return info


def _problem(
    error: grpc.RpcError, address: str, credentials: ClientCredentials, timeout_s: float
) -> Exception:
    details = error.details() or ""
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return ConfigError(f"{address} refuses the call: {details}")
    if remedy := credentials.explain(details, address):
        return Unreachable(f"{address} can't be connected: {details}. {remedy}")
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return Unreachable(
            f"{address} is another gRPC service: {details.rstrip('.!')}. Correct the address."
        )
    silent = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    why = "no answer" if silent else addresses.cause(details or error.code().name)
    remedy = credentials.guess(details) or addresses.remedy(
        address.removeprefix("dns:///"), why, setting="the address"
    )
    return Unreachable(f"{address} does not answer within {timeout_s:g} s: {why}. {remedy}")


def _describe(address: str, info: types_pb2.ServiceInfo) -> str:
    lines = [f"{address} is SERVING, shardward {info.version}"]
    for fn in info.reward_fns:
        columns = ", ".join(fn.required_columns) or "none"
        lines.append(
            f"  {fn.name}  weight={fn.weight:g}  timeout_s={fn.timeout_s:g}  columns={columns}"
        )
    routes = info.workers or info.unusable_workers
    behind = f"{info.workers} workers" if routes else "its own processes"
    lines.append(f"  {info.slots} slots in {behind}, {info.rows_scored} rows scored")
    if info.unusable_workers:
        known = info.workers + len(info.unusable_workers)
        others = "; ".join(f"{worker.address} {worker.reason}" for worker in info.unusable_workers)
        lines.append(f"  {info.workers} of {known} workers usable: {others}")
    lines.append(f"  tokenizer {info.tokenizer_fingerprint[:12]}, {info.vocab_size} tokens")
    return "\n".join(lines)
