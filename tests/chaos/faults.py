# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults by a seed: kills, stalls and bad messages, one after the other."""

from __future__ import annotations

import collections
import random
import signal
import threading
from collections.abc import Callable, Sequence

import grpc
from shardward.v1 import reward_pb2, types_pb2

from tests.chaos.services import Service

_METHOD = "/shardward.v1.RewardService/ScoreRollouts"
_EXPECTED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    # It is no message at all; the server is being started; it stalls.
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


class Faults:
    """Injects a fault every so often while the context is open.

    Args:
        servers: reward servers, with their endpoints in the same order.
        endpoints: where they listen.
        workers: reward workers.
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
        seed: int,
        every_s: float,
    ) -> None:
        self._servers, self._endpoints, self._workers = servers, endpoints, workers
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
