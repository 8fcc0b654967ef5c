# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What both services do with a call: check, score, remember the answer. Knows no gRPC."""

from __future__ import annotations

import asyncio
import collections
import importlib.metadata
import time

from shardward.v1 import types_pb2

from reward_server import messages
from reward_server.batch import Scorer
from reward_server.channel import MAX_MESSAGE_BYTES
from reward_server.decode import Tokenizer
from reward_server.status import TokenizerMismatch

MEMO_BYTES = 64 * 2**20


class Handler:
    """Scores calls with one scorer, each request id once.

    A retry joins the call that is still running, or gets the answer again as long as it is
    remembered; its rows are not scored twice.

    Attributes:
        rows_scored: rows scored since the start, failed ones included.
        calls_joined: retries that were answered without scoring.
    """

    def __init__(
        self, scorer: Scorer, tokenizer: Tokenizer, *, memo_bytes: int = MEMO_BYTES
    ) -> None:
        """Takes a scorer that has been started."""
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._memo_bytes = memo_bytes
        self._memo: collections.OrderedDict[str, types_pb2.RewardBatch] = collections.OrderedDict()
        self._used_bytes = 0
        self._running: dict[str, asyncio.Task[types_pb2.RewardBatch]] = {}
        self.rows_scored = 0
        self.calls_joined = 0

    async def score(
        self,
        request_id: str,
        rollouts: types_pb2.RolloutBatch,
        *,
        step: int,
        mode: int,
        fingerprint: str,
        timeout_s: float,
    ) -> types_pb2.RewardBatch:
        """Scores the rows of one call.

        Raises:
            RequestError: the request can't be scored as it stands.
            TokenizerMismatch: the caller has another tokenizer.
            TimeoutError: the time ran out.
            WorkersUnavailable: no worker can be reached.
        """
        messages.check_request_id(request_id)
        if request_id in self._memo:
            self.calls_joined += 1
            return self._memo[request_id]
        task = self._running.get(request_id)
        if task is None:
            if fingerprint and fingerprint != self._tokenizer.fingerprint:
                raise TokenizerMismatch(
                    f"`tokenizer_fingerprint` must be {self._tokenizer.fingerprint[:12]}, got"
                    f" {fingerprint[:12]}. Start this server with the trainer's tokenizer."
                )
            task = asyncio.create_task(
                self._score(request_id, rollouts, step=step, mode=mode, timeout_s=timeout_s)
            )
            self._running[request_id] = task
            task.add_done_callback(lambda _: self._running.pop(request_id, None))
        else:
            self.calls_joined += 1
        # A caller that went away may come back with the same id: the rows are scored anyway.
        return await asyncio.wait_for(asyncio.shield(task), timeout_s)

    async def _score(
        self,
        request_id: str,
        rollouts: types_pb2.RolloutBatch,
        *,
        step: int,
        mode: int,
        timeout_s: float,
    ) -> types_pb2.RewardBatch:
        start = time.monotonic()
        reward_fns = self._scorer.reward_fns
        batch = messages.to_batch(
            rollouts, tokenizer=self._tokenizer, reward_fns=reward_fns, step=step, mode=mode
        )
        scores = await self._scorer.score(batch, timeout_s=timeout_s)
        self.rows_scored += batch.rows
        result = messages.from_scores(scores, reward_fns, total_s=time.monotonic() - start)
        self._remember(request_id, result)
        return result

    def _remember(self, request_id: str, result: types_pb2.RewardBatch) -> None:
        self._memo[request_id] = result
        self._used_bytes += result.ByteSize()
        while self._used_bytes > self._memo_bytes and self._memo:
            _, old = self._memo.popitem(last=False)
            self._used_bytes -= old.ByteSize()

    def info(self) -> types_pb2.ServiceInfo:
        """Functions, tokenizer, limits and counts."""
        return types_pb2.ServiceInfo(
            reward_fns=[
                types_pb2.RewardFnInfo(
                    name=fn.name,
                    weight=fn.weight,
                    timeout_s=fn.timeout_s,
                    required_columns=fn.required_columns,
                )
                for fn in self._scorer.reward_fns
            ],
            tokenizer_fingerprint=self._tokenizer.fingerprint,
            slots=self._scorer.slots,
            max_message_bytes=MAX_MESSAGE_BYTES,
            version=version(),
            rows_scored=self.rows_scored,
            workers=self._scorer.workers,
            vocab_size=self._tokenizer.vocab_size,
        )


def version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version("shardward")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
