# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward worker as the router sees it: its channel, what it is and what it has to do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable

import grpc
from shardward.addresses import cause
from shardward.targets import Target
from shardward.v1 import scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server.pieces import RoutedCall

# A piece that waited longer than another one takes, and longer than this, was sent too early: other
# servers use the worker, too.
_LEAST_WAIT_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Rows [start, stop) of a call, under way."""

    call: RoutedCall
    start: int
    stop: int


@dataclasses.dataclass(eq=False)
class RemoteWorker:
    """One worker.

    Attributes:
        address: where it is.
        dial: makes a channel to it, from the text of a target.
        slots: pieces that it can work on at a time; 0 until it has been met.
        info: what it said it is, or None while it can't be used.
        listed: whether it is to get new rows; one that is not ends those it has.
        pieces: what it has to do.
        window: pieces that it gets at a time; fewer than its slots when they wait long.
        heard: when it last answered, `time.monotonic`.
        rest_until: when it may get pieces again after its queue was full.
    """

    address: str
    dial: Callable[[str], grpc.aio.Channel]
    slots: int = 0
    info: types_pb2.ServiceInfo | None = None
    listed: bool = True
    pieces: dict[asyncio.Task[None], Piece] = dataclasses.field(default_factory=dict)
    window: int = 0
    heard: float = 0.0
    rest_until: float = 0.0
    keeper: asyncio.Task[None] | None = None
    _target: Target | None = dataclasses.field(init=False, default=None)
    _channel: grpc.aio.Channel | None = dataclasses.field(init=False, default=None)

    async def connect(self) -> None:
        """Makes its channel; makes it anew if another socket lies there and no piece is under way.

        Raises:
            shardward.targets.Refused: it is another user's.
        """
        if self._target is not None and (self.pieces or not self._target.replaced):
            return
        target = Target(self.address)
        await self._hang_up()
        self._target, self._channel = target, self.dial(target.text)

    @property
    def stub(self) -> scoring_pb2_grpc.ScoringServiceStub:
        """Of its channel; there is one once it has been met."""
        return scoring_pb2_grpc.ScoringServiceStub(self._channel)

    @property
    def usable(self) -> bool:
        """Whether it may get rows."""
        return self.listed and self.info is not None

    @property
    def rows_per_slot(self) -> int:
        """Rows that a slot works on side by side."""
        return max(1, self.info.rows_per_slot) if self.info is not None else 1

    def meet(self, info: types_pb2.ServiceInfo, slots: int) -> None:
        """Takes note of what it is."""
        self.info = info
        self.slots = self.window = slots

    def free(self, *, ahead: bool) -> int:
        """Pieces it can take now; one more if it shall have one before a slot is free."""
        if not self.usable or time.monotonic() < self.rest_until:
            return 0
        return self.window + ahead - len(self.pieces)

    def answered(self, *, waited_s: float, piece_s: float) -> None:
        """Takes note of how long a piece waited there, and what such a piece takes."""
        self.heard = time.monotonic()
        limit = max(_LEAST_WAIT_S, piece_s)
        if waited_s > limit:
            self.window = max(1, self.window - 1)
        elif waited_s < limit / 2:
            self.window = min(self.slots, self.window + 1)

    def add(self, task: asyncio.Task[None], piece: Piece) -> None:
        """Notes a piece that is sent to it."""
        if not self.pieces:
            self.heard = time.monotonic()
        self.pieces[task] = piece

    async def ask(
        self, *, timeout_s: float, metadata: tuple[tuple[str, str], ...]
    ) -> types_pb2.ServiceInfo:
        """Asks it what it is.

        Raises:
            grpc.aio.AioRpcError: it did not answer.
        """
        request = scoring_pb2.ScoringServiceGetInfoRequest()
        response = await self.stub.GetInfo(request, timeout=timeout_s, metadata=metadata)
        info: types_pb2.ServiceInfo = response.info
        return info

    @property
    def broken(self) -> bool:
        """Whether there is no connection to it; asking the channel costs nothing."""
        assert self._channel is not None
        return self._channel.get_state() is not grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Closes the channel."""
        if self.keeper is not None:
            self.keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.keeper
        await self._hang_up()

    async def _hang_up(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        if self._target is not None:
            self._target.close()
        self._channel = self._target = None


def reason(error: grpc.RpcError) -> str:
    """Says in a few words why a call failed: what the system says of a broken connection."""
    details = error.details() or ""
    if error.code() != grpc.StatusCode.UNAVAILABLE:
        return f"{error.code().name}: {details}"
    plain = cause(details)
    return f"{error.code().name}: {details}" if plain == details else plain
