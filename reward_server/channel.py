# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of gRPC connections, the same for servers and for those who call them."""

from __future__ import annotations

from shardward import targets

MAX_MESSAGE_BYTES = 64 * 2**20
KEEPALIVE_TIME_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000
# Below the keepalive time of callers and trainers (10 s), or a server would close connections for
# pinging too often.
MIN_PING_INTERVAL_MS = 5_000

# Nothing here compresses. A few bytes that unfold to 64 MiB would cost their receiver, which needs
# no token for a health check, a thousand times what they cost the sender: only "identity" is taken.
_NO_COMPRESSION = ("grpc.compression_enabled_algorithms_bitset", 1)
_SIZES = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    _NO_COMPRESSION,
)

CLIENT_OPTIONS = (
    *targets.OPTIONS,
    *_SIZES,
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # gRPC would stop after two pings of a long call.
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A name may stand for another address after a restart.
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)

_PORT = (
    # Two servers would share a port by accident.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.keepalive_permit_without_calls", 1),
)

SERVER_OPTIONS = (*_SIZES, *_PORT)

# A port for health checks alone is open to everybody.
HEALTH_OPTIONS = (("grpc.max_receive_message_length", 4096), _NO_COMPRESSION, *_PORT)
