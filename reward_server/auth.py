# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: read from a file, sent with each call, compared in constant time."""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from reward_server import status
from reward_server.config import ConfigError

_HEADER = "authorization"
_OPEN_TO_ALL = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"
_Metadata = tuple[tuple[str, str], ...]


def read_token(flag: str, path: str) -> str:
    """Reads a token that nobody but the file's owner can read, or a group that root chose.

    Raises:
        ConfigError: names the flag and what is wrong with the file, never its content.
    """
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"`{flag}` must be a regular file, got {path}.")
        mode = stat.S_IMODE(found.st_mode)
        if mode & _forbidden(found.st_uid):
            raise ConfigError(
                f"`{flag}` must be for its owner only, got mode {mode:04o} of {path}."
                f" Say: chmod 600 {path}"
            )
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"`{flag}` must be a readable file, got {path}: {error}.") from error
    if not token:
        raise ConfigError(f"`{flag}` must hold a token, got an empty file {path}.")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise ConfigError(f"`{flag}` must hold one word of ASCII, got other bytes in {path}.")
    return token.decode()


def _forbidden(owner: int) -> int:
    # Kubernetes leaves a Secret's files to root and lets the group of a pod's user read them.
    shared = owner == 0 and os.geteuid() != 0
    return stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if shared else stat.S_IRWXG)


def bearer(token: str) -> _Metadata:
    """The metadata of a call that shows a token; nothing for no token."""
    return ((_HEADER, f"Bearer {token}"),) if token else ()


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls without the token, before their messages are read; health checks pass."""

    def __init__(self, token: str) -> None:
        """Takes the token that callers must show."""
        self._token = token.encode()

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Lets a call through or answers it with a refusal."""
        if handler_call_details.method.startswith(_OPEN_TO_ALL):
            return await continuation(handler_call_details)
        metadata = handler_call_details.invocation_metadata or ()
        shown = [value for name, value in metadata if name == _HEADER]
        if len(shown) == 1 and self._is_token(shown[0]):
            return await continuation(handler_call_details)
        refusal = status.Unauthenticated(missing=not shown)

        async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await status.abort(context, refusal, caller=context.peer())

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _is_token(self, value: str | bytes) -> bool:
        data = value.encode() if isinstance(value, str) else value
        scheme, _, token = data.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._token)
