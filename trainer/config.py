# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the reward client."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import os

# Calls are split by rows so that none is larger; the server takes 64 MiB.
DEFAULT_CALL_BYTES = 16 * 2**20
MAX_MESSAGE_BYTES = 64 * 2**20
_SOCKET_PATH_BYTES = 107


def broken_rule(endpoint: str) -> str:
    """Says what an endpoint must be that it is not.

    Returns:
        The rule for the sentence "must be <rule>", or "" if the endpoint is well formed.

    Example:
        >>> broken_rule("::1:5000")
        '[ADDRESS]:PORT for an IPv6 address'
    """
    if endpoint.startswith("unix:"):
        return _broken_path_rule(endpoint.removeprefix("unix:"))
    host, colon, port = endpoint.rpartition(":")
    if not host or not colon or "/" in endpoint or any(c.isspace() for c in endpoint):
        return "unix:PATH or HOST:PORT"
    if not (port.isascii() and port.isdigit() and 1 <= int(port) < 2**16):
        return "HOST:PORT with a port in [1, 65535]"
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare or host != bare:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            return "unix:PATH or HOST:PORT"
        if host != f"[{bare}]":
            return "[ADDRESS]:PORT for an IPv6 address"
    return ""


def _broken_path_rule(path: str) -> str:
    if path.startswith("//"):
        path = path.removeprefix("//")
        if not path.startswith("/"):
            return "unix:PATH or unix:///ABSOLUTE/PATH"
    if not path.strip("/"):
        return "unix:PATH or HOST:PORT"
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        return f"unix:PATH with at most {_SOCKET_PATH_BYTES} bytes of path"
    return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardClientConfig:
    """Settings of a `RewardClient`.

    Attributes:
        endpoint: reward server of this process: "unix:PATH" or "HOST:PORT".
        timeout_s: seconds for the rewards of one batch, retries included.
        connect_timeout_s: seconds that the server has to be ready when training starts; a reward
            function may take 120 of them to load.
        call_bytes: most bytes of token ids and text in one call; larger batches are split by rows.
        tls_ca: PEM file of the CA that signed the server's certificate; None for no TLS.
        tls_cert: PEM file of the certificate to show; with tls_key only.
        tls_key: PEM file of its private key.
        token_file: file of the token to show, readable by its owner only.
    """

    endpoint: str
    timeout_s: float = 300.0
    connect_timeout_s: float = 180.0
    call_bytes: int = DEFAULT_CALL_BYTES
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    token_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the field, the rule and the value.
        """
        if rule := broken_rule(self.endpoint):
            raise ValueError(f"`endpoint` must be {rule}, got {self.endpoint!r}.")
        if self.tls_ca is not None and self.endpoint.startswith("unix:"):
            raise ValueError(
                f"`tls_ca` must be left out for a unix socket, got endpoint {self.endpoint!r}."
            )
        for name in ("timeout_s", "connect_timeout_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"`{name}` must be > 0 seconds and finite, got {getattr(self, name)}."
                )
        if not 2**10 <= self.call_bytes <= MAX_MESSAGE_BYTES // 2:
            raise ValueError(
                f"`call_bytes` must be in [{2**10}, {MAX_MESSAGE_BYTES // 2}],"
                f" got {self.call_bytes}."
            )
