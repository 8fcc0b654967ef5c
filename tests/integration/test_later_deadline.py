# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Retries that join a call with more time than it has left."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from shardward.v1 import reward_pb2_grpc

from reward_server.channel import CLIENT_OPTIONS
from tests.integration import service

ROWS = ["ab"] * 8


@pytest.mark.parametrize("behind", ["processes", "worker"])
async def test_a_retry_puts_the_deadline_of_its_call_off(tmp_path, behind):
    """Whoever has less time gets an error at his; the other one the rewards."""
    files = service.files(service.write_files(tmp_path))
    flags = ("--listen", f"unix:{tmp_path}/w", *files, "--slots", 1)
    with service.command("serve" if behind == "processes" else "worker", *flags) as scoring:
        address = scoring.ready().address
        if behind == "processes":
            await put_off(address)
            return
        flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", tmp_path, "--workers", address)
        with service.command("serve", *flags) as server:
            await put_off(server.ready().address)


async def put_off(address):
    """Sends a call of 3 s with 1 s of time, and joins it with 60 s, first and last."""
    async with grpc.aio.insecure_channel(address, CLIENT_OPTIONS) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        rows = service.request(ROWS, seconds=0.4)
        short = stub.ScoreRollouts(rows, timeout=1)
        await asyncio.sleep(0.2)
        longer = stub.ScoreRollouts(rows, timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await short
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        shorter = stub.ScoreRollouts(rows, timeout=0.1)
        assert await shorter.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert service.totals((await longer).rewards).tolist() == [2] * len(ROWS)
