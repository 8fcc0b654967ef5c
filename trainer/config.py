# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the reward client."""

from __future__ import annotations

import dataclasses
import math
import os

from shardward.addresses import broken_rule

# Calls are split by rows so that none is larger; the server takes 64 MiB.
DEFAULT_CALL_BYTES = 16 * 2**20
MAX_MESSAGE_BYTES = 64 * 2**20


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
