# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What both services do with a call: check, score, remember the answer. Knows no gRPC."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import importlib.metadata
import logging
import time
import zlib

from shardward.v1 import types_pb2

from reward_server import messages
from reward_server.batch import Scorer
from reward_server.channel import MAX_MESSAGE_BYTES
from reward_server.decode import Tokenizer
from reward_server.messages import RequestError
from reward_server.status import Draining, TokenizerMismatch

MEMO_BYTES = 64 * 2**20
# The scorer ends by itself at the deadline and knows more about it.
_GRACE_S = 0.1
_Digest = tuple[int, int, int]
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    digest: _Digest
    task: asyncio.Task[types_pb2.RewardBatch]


class Handler:
    """Scores calls with one scorer, each request id once.

    A retry joins the call that is still running, or gets the answer again as long as it is
    remembered; its rows are not scored twice.

    Attributes:
        rows_scored: rows scored since the start, failed ones included.
        calls_joined: retries that were answered without scoring.
        draining: whether only calls that are known are answered.
    """

    def __init__(
        self, scorer: Scorer, tokenizer: Tokenizer, *, memo_bytes: int = MEMO_BYTES
    ) -> None:
        """Takes a scorer that has been started."""
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._memo_bytes = memo_bytes
        self._memo: collections.OrderedDict[str, tuple[_Digest, types_pb2.RewardBatch]] = (
            collections.OrderedDict()
        )
        self._used_bytes = 0
        self._running: dict[str, _Running] = {}
        self.rows_scored = 0
        self.calls_joined = 0
        self.draining = False

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
            Draining: the process is about to stop.
        """
        messages.check_request_id(request_id)
        if fingerprint and fingerprint != self._tokenizer.fingerprint:
            raise TokenizerMismatch(expected=self._tokenizer.fingerprint, got=fingerprint)
        digest = _digest(rollouts)
        known, result = self._memo.get(request_id, (digest, None))
        running = self._running.get(request_id)
        if running is not None:
            known = running.digest
        if known != digest:
            raise RequestError("request_id", f"`request_id` must be new, {request_id!r} was used.")
        if result is not None or running is not None:
            self.calls_joined += 1
        if result is not None:
            return result
        if running is None:
            if self.draining:
                raise Draining("this server is stopping; send the call again to the next one.")
            task = asyncio.create_task(
                self._score(request_id, rollouts, step=step, mode=mode, timeout_s=timeout_s)
            )
            running = self._running[request_id] = _Running(digest, task)
            task.add_done_callback(lambda task: self._ended(request_id, task))
        # A caller that went away may come back with the same id: the rows are scored anyway.
        return await asyncio.wait_for(asyncio.shield(running.task), timeout_s + _GRACE_S)

    def _ended(self, request_id: str, task: asyncio.Task[types_pb2.RewardBatch]) -> None:
        running = self._running.pop(request_id)
        if not task.cancelled() and task.exception() is None:
            self._remember(request_id, running.digest, task.result())

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
        total_s = time.monotonic() - start
        logger.debug(
            "scored request_id=%s rows=%d failed=%d total_s=%.3f",
            request_id,
            batch.rows,
            len(scores.errors),
            total_s,
        )
        return messages.from_scores(scores, reward_fns, total_s=total_s)

    def _remember(self, request_id: str, digest: _Digest, result: types_pb2.RewardBatch) -> None:
        self._memo[request_id] = digest, result
        self._used_bytes += result.ByteSize()
        while self._used_bytes > self._memo_bytes and self._memo:
            _, (_, old) = self._memo.popitem(last=False)
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


def _digest(rollouts: types_pb2.RolloutBatch) -> _Digest:
    """Tells a retry from another call that was given the same id by mistake.

    A checksum is enough against mistakes, and costs a fifth of a cryptographic hash.
    """
    ids = rollouts.completion_ids
    return len(rollouts.row_ids), hash(tuple(rollouts.row_ids)), zlib.crc32(ids)


def version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version("shardward")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
