# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed messages are refused before they unfold, on every port, with and without a token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from tests.integration import service

CODE = grpc.StatusCode
MIB = 2**20
BOMBS = 16
HEALTH = "/grpc.health.v1.Health/Check"
SCORE = "/shardward.v1.RewardService/ScoreRollouts"
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


def field(size):
    """A message whose first field holds so many zeros."""
    length, left = bytearray(), size
    while left >= 128:
        length.append(left & 127 | 128)
        left >>= 7
    return b"\x0a" + bytes([*length, left]) + bytes(size)


BOMB = field(16 * MIB)


def send(address, method, data, *, compression=grpc.Compression.Gzip):
    """The code with which a call ends, on a connection of its own."""
    with grpc.insecure_channel(address, OPTIONS) as channel:
        try:
            channel.unary_unary(method)(data, timeout=100, compression=compression)
        except grpc.RpcError as error:
            return error.code()
    return CODE.OK


@pytest.mark.parametrize("with_token", [False, True])
def test_bombs_take_no_memory(tmp_path, files, with_token):
    """Sixteen at once on the main port and on that for health checks."""
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    flags = ("--token-file", token) if with_token else ()
    with service.command(
        *("serve", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--slots", 1),
        *service.files(files),
        *flags,
    ) as server:
        main = server.ready().address
        health = server.log.partition("health checks listen=")[2].split()[0]
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        with ThreadPoolExecutor(4) as threads:
            ports = ((main, HEALTH), (main, SCORE), (health, HEALTH))
            for address, method in ports[: 1 if with_token else None]:
                codes = set(
                    threads.map(lambda _, a=address, m=method: send(a, m, BOMB), range(BOMBS))
                )
                assert codes <= {CODE.UNIMPLEMENTED, CODE.RESOURCE_EXHAUSTED}
        assert process.memory_info().rss - before < 100 * MIB
        good = health_pb2.HealthCheckRequest().SerializeToString()
        for address in (main, health):
            plain = send(address, HEALTH, good, compression=grpc.Compression.NoCompression)
            assert plain == CODE.OK
        large = send(health, HEALTH, field(5000), compression=grpc.Compression.NoCompression)
        assert large == CODE.RESOURCE_EXHAUSTED
