# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses that a process listens on: where it may, that they are free, and binding them."""

from __future__ import annotations

import dataclasses
import logging
import os

import grpc
from shardward.addresses import is_local

from reward_server.batch import StartError
from reward_server.credentials import ServerCredentials
from reward_server.unix_socket import SocketPath

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where a process listens, and to whom.

    Attributes:
        address: unix:PATH or HOST:PORT.
        health_address: HOST:PORT of a second port that answers health checks only, without TLS.
        metrics_address: HOST:PORT where Prometheus gets metrics, without TLS.
        insecure_bind: whether others than this machine may connect without TLS.
        credentials: what callers are shown and asked for.
    """

    address: str
    health_address: str | None = None
    metrics_address: str | None = None
    insecure_bind: bool = False
    credentials: ServerCredentials = dataclasses.field(default_factory=ServerCredentials)

    def __post_init__(self) -> None:
        """Checks the addresses.

        Raises:
            StartError: an address has no port, or others could connect without TLS.
        """
        if self.health_address is not None:
            _host("--health-listen", self.health_address)
        if self.metrics_address is not None:
            _host("--metrics-listen", self.metrics_address)
        if self.address.startswith("unix:"):
            if self.credentials.has_tls:
                raise StartError(
                    "`--tls-cert` must be left out for a unix socket: its mode 0600 says who may"
                    f" connect, got --listen {self.address}."
                )
            return
        host = _host("--listen", self.address)
        if not (is_local(self.address) or self.credentials.has_tls or self.insecure_bind):
            raise StartError(
                f"`--listen` must be a unix socket or loopback, got {host!r}: anybody could"
                f" connect{' and read the token' if self.credentials.token else ''}. Pass"
                " --tls-cert and --tls-key, or say --insecure-bind to listen there all the same."
            )

    def bind(self, server: grpc.aio.Server, path: SocketPath | None) -> str:
        """Binds the address and warns if everybody may use it; returns it with its real port.

        Args:
            server: that is to listen.
            path: of the unix socket, held; None for another address.

        Raises:
            StartError: it is taken.
        """
        if path is not None:
            _bind(server, "--listen", path.bind_address, None)
            path.publish()
            return self.address
        tls = self.credentials.for_port() if self.credentials.has_tls else None
        address = _bind(server, "--listen", self.address, tls)
        if not is_local(address):
            if tls is None:
                logger.warning(
                    "listening without TLS listen=%s: whoever is on the network path reads and"
                    " changes calls",
                    address,
                )
            if not self.credentials.asks:
                logger.warning(
                    "listening to everybody listen=%s: whoever reaches it may send rows; pass"
                    " --token-file or --tls-client-ca",
                    address,
                )
        return address

    def bind_health(self, server: grpc.aio.Server) -> str:
        """Binds the port for health checks; returns it with its real port.

        Raises:
            StartError: it is taken.
        """
        return _bind(server, "--health-listen", self.health_address or "", None)


def _host(flag: str, address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) >= 2**16:
        kinds = "unix:PATH or HOST:PORT" if flag == "--listen" else "HOST:PORT"
        raise StartError(f"`{flag}` must be {kinds}, got {address!r}.")
    return host


def _bind(
    server: grpc.aio.Server, flag: str, address: str, tls: grpc.ServerCredentials | None
) -> str:
    mask = os.umask(0o177)
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls)
    except RuntimeError as error:
        raise StartError(f"`{flag}` must be free, got {address}: {error}.") from error
    finally:
        os.umask(mask)
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
