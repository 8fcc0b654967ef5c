# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults by a seed: kills, stalls, bad messages and bad workers, one after the other."""

from __future__ import annotations

import collections
import random
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc, types_pb2

from tests.chaos.services import Service

_METHOD = "/shardward.v1.RewardService/ScoreRollouts"
# Rows that a caller leaves behind, and how long it waits before it goes.
_LEFT_ROWS = 4096
_LEAVES_AFTER_S = 0.03
# The server is being started; it stalls.
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# It is no message at all.
_EXPECTED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN, *_AWAY)


class Faults:
    """Injects a fault every so often while the context is open.

    Args:
        servers: reward servers, with their endpoints in the same order.
        endpoints: where they listen.
        workers: reward workers.
        other_rewards: rewards file of the same functions with other parameters.
        broken: file that keeps the functions from being loaded while it is there.
        seed: decides kind, target and time.
        every_s: mean seconds between faults.

    Attributes:
        injected: faults by kind.
        answers: bad messages by the status they got.
    """

    def __init__(
        self,
        servers: Sequence[Service],
        endpoints: Sequence[str],
        workers: Sequence[Service],
        *,
        other_rewards: Path,
        broken: Path,
        seed: int,
        every_s: float,
    ) -> None:
        self._servers, self._endpoints, self._workers = servers, endpoints, workers
        self._other_rewards, self._broken = other_rewards, broken
        self._random = random.Random(seed)
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.injected: collections.Counter[str] = collections.Counter()
        self.answers: collections.Counter[str] = collections.Counter()
        self._error: Exception | None = None
        self._kinds: dict[str, tuple[int, Callable[[], bool]]] = {
            "worker killed": (5, lambda: self._kill(self._workers)),
            "server killed": (2, lambda: self._kill(self._servers)),
            "worker stalled": (3, lambda: self._stall(self._workers)),
            "server stalled": (1, lambda: self._stall(self._servers)),
            "bad message": (4, self._bad_message),
            "caller vanished": (3, self._vanish),
            "worker changed": (2, self._change),
            "children don't start": (2, self._break_children),
        }

    def __enter__(self) -> None:
        """Begins."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Ends; a stall under way is over then.

        Raises:
            Exception: what went wrong in a fault, a bad message that was answered for example.
        """
        self._done.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._inject()
        except Exception as error:  # noqa: BLE001 - raised when the context ends
            self._error = error

    def _inject(self) -> None:
        kinds = list(self._kinds)
        weights = [self._kinds[kind][0] for kind in kinds]
        while not self._done.wait(self._random.expovariate(1 / self._every_s)):
            (kind,) = self._random.choices(kinds, weights)
            if self._kinds[kind][1]():
                self.injected[kind] += 1

    def _kill(self, services: Sequence[Service]) -> bool:
        return self._random.choice(services).signal(signal.SIGKILL)

    def _stall(self, services: Sequence[Service]) -> bool:
        service = self._random.choice(services)
        if not service.signal(signal.SIGSTOP):
            return False
        self._done.wait(self._random.uniform(0.5, 4.0))
        service.signal(signal.SIGCONT)
        return True

    def _bad_message(self) -> bool:
        message = self._message()
        with grpc.insecure_channel(self._random.choice(self._endpoints)) as channel:
            try:
                channel.unary_unary(_METHOD)(message, timeout=5)
            except grpc.RpcError as error:
                self.answers[error.code().name] += 1
                if error.code() not in _EXPECTED:
                    raise
            else:
                raise AssertionError(f"a bad message was answered: {message[:80]!r}")
        return True

    def _vanish(self) -> bool:
        """Leaves rows behind that nobody waits for."""
        batch = types_pb2.RolloutBatch(
            completion_ids=b"\x05\x00\x00\x00" * _LEFT_ROWS,
            completion_lengths=[1] * _LEFT_ROWS,
            prompts=["1+1="] * _LEFT_ROWS,
            row_ids=range(_LEFT_ROWS),
            columns=[
                types_pb2.Column(
                    name="answer", string_values=types_pb2.StringValues(values=["2"] * _LEFT_ROWS)
                )
            ],
        )
        request = reward_pb2.ScoreRolloutsRequest(
            request_id=f"left/{self._random.random()}", rollouts=batch
        )
        with grpc.insecure_channel(self._random.choice(self._endpoints)) as channel:
            call = channel.unary_unary(_METHOD).future(request.SerializeToString(), timeout=60)
            self._done.wait(_LEAVES_AFTER_S)
            if not call.done():
                return True
            if call.code() not in (grpc.StatusCode.OK, *_AWAY):
                call.result()
        return False

    def _change(self) -> bool:
        """Starts a worker again with other parameters, and after a while as it was."""
        worker = self._random.choice(self._workers)
        # A server that is being started takes the functions of the first worker it meets.
        if not all(_answers(endpoint) for endpoint in self._endpoints):
            return False
        arguments = worker.arguments
        place = arguments.index("--rewards") + 1
        worker.arguments = [*arguments[:place], str(self._other_rewards), *arguments[place + 1 :]]
        worker.signal(signal.SIGKILL)
        self._done.wait(self._random.uniform(4.0, 8.0))
        worker.arguments = arguments
        return worker.signal(signal.SIGKILL)

    def _break_children(self) -> bool:
        """Kills the children of a worker, and for a while no other can be started anywhere."""
        self._broken.touch()
        try:
            found = self._random.choice(self._workers).kill_children()
            self._done.wait(self._random.uniform(1.0, 4.0))
        finally:
            self._broken.unlink()
        return found

    def _message(self) -> bytes:
        kind = self._random.randrange(3)
        if kind == 0:
            return self._random.randbytes(self._random.randrange(1, 5000))
        batch = types_pb2.RolloutBatch(
            completion_ids=b"\x05\x00\x00\x00" * 4,
            completion_lengths=[2, 3 if kind == 1 else 2],
            prompts=["1+1=", "1+2="],
            row_ids=[1, 1],
        )
        request = reward_pb2.ScoreRolloutsRequest(
            request_id=f"bad/{self._random.random()}", rollouts=batch
        )
        return request.SerializeToString()


def _answers(endpoint: str) -> bool:
    with grpc.insecure_channel(endpoint) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        try:
            stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest(), timeout=1)
        except grpc.RpcError:
            return False
    return True
