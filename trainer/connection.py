# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The connection of a reward client: its channel, from the first call until it is closed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import grpc
from shardward import targets
from shardward.addresses import is_local
from shardward.v1 import reward_pb2_grpc

from trainer.config import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from trainer.credentials import ClientCredentials

logger = logging.getLogger(__name__)

_OPTIONS = (
    *targets.OPTIONS,
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Servers refuse compressed messages and send none.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # A dead connection is found within 20 s, also late in a long call: gRPC would stop after two
    # pings. Servers allow one every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # The longest wait for a connection; the next attempt may meet a server that was restarted.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
    # Login nodes export http_proxy, which gRPC would use even for local addresses.
    ("grpc.enable_http_proxy", 0),
)


class Closed(Exception):  # noqa: N818 - named for the state
    """The connection was closed."""


class Connection:
    """Sends calls to one reward server. Safe to use from several threads.

    The channel is made by the first call: a client may be built before JAX forks or initialises.

    Attributes:
        endpoint: address of the server.
        credentials: what it is shown.
        closed: set when it is closed.
    """

    def __init__(self, endpoint: str, credentials: ClientCredentials) -> None:
        """Takes where the server is; nothing is opened yet."""
        self.endpoint = endpoint
        self.credentials = credentials
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._dialler = targets.Dialler(endpoint, self._open)

    def _open(self, target: str) -> grpc.Channel:
        tls = self.credentials.for_channel()
        if tls is not None:
            return grpc.secure_channel(target, tls, _OPTIONS)
        if self.credentials.token and not is_local(self.endpoint):
            logger.warning("token is sent without TLS endpoint=%s: pass tls_ca", self.endpoint)
        return grpc.insecure_channel(target, _OPTIONS)

    def send(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """Sends a request to a method of the RewardService; the call that is under way then.

        Raises:
            Closed: the connection was closed.
            shardward.targets.Refused: another user's socket lies at the endpoint.
        """
        # The whole of it: another thread may close the channel, or replace it.
        with self._lock:
            if self.closed.is_set():
                raise Closed
            stub = reward_pb2_grpc.RewardServiceStub(self._dialler.channel())
            call = getattr(stub, method)
            return call.future(request, timeout=timeout_s, metadata=self.credentials.metadata)

    def close(self) -> None:
        """Closes it; calls under way end at once with an error."""
        with self._lock:
            self.closed.set()
            self._dialler.close()
