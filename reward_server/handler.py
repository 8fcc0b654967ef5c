# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What both services do with a call: check, score, remember the answer. Knows no gRPC."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import importlib.metadata
import logging
import time

import numpy as np
from shardward.v1 import types_pb2

from reward_server import messages
from reward_server.batch import Deadline, RowStatus, Scorer, WorkersUnavailable
from reward_server.channel import MAX_MESSAGE_BYTES
from reward_server.decode import Tokenizer
from reward_server.messages import RequestError
from reward_server.status import Draining, QueueFull, RewardFnsChanged, TokenizerMismatch

MEMO_BYTES = 64 * 2**20
QUEUE_BYTES = 256 * 2**20
# What an answer takes beyond its bytes.
_MEMO_ENTRY_BYTES = 1000
# A call that nobody has waited for since then is dropped: longer than a trainer, or a reward
# server, needs to come back after a broken connection.
ABANDONED_S = 30.0
WORKER_ABANDONED_S = 5.0
# How rows end that get no outcome of their own.
LOST = ("expired", "unavailable", "refused", "dropped")
# The scorer ends by itself at the deadline and knows more about it.
_GRACE_S = 0.1
_Digest = tuple[int, int]
logger = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class _Running:
    digest: _Digest
    task: asyncio.Task[types_pb2.RewardBatch]
    queue_bytes: int
    rows: int
    deadline: Deadline
    waiting: int = 0
    abandoned: asyncio.TimerHandle | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    digest: _Digest
    rewards: types_pb2.RewardBatch
    memo_bytes: int


class Handler:
    """Scores calls with one scorer, each request id once.

    A retry joins the call that is still running, which then has the later of their deadlines, or
    gets the answer again as long as it is remembered; its rows are not scored twice. A call whose
    callers have all gone, and do not come back, is dropped.

    Attributes:
        scorer: scores the rows.
        rows_scored: rows scored since the start, failed ones included.
        outcomes: the same rows, counted by the name of their `RowStatus`; and rows of calls that
            ended without an answer, by those of `LOST`.
        calls_joined: retries that were answered without scoring.
        calls_refused: calls that were told to come again because too many were waiting.
        draining: whether only calls that are known are answered.
    """

    def __init__(
        self,
        scorer: Scorer,
        tokenizer: Tokenizer,
        *,
        memo_bytes: int = MEMO_BYTES,
        max_queue_bytes: int = QUEUE_BYTES,
        abandoned_s: float = ABANDONED_S,
    ) -> None:
        """Takes a scorer that has been started.

        Args:
            scorer: scores the rows.
            tokenizer: the one that callers must have.
            memo_bytes: most bytes of answers kept for retries.
            max_queue_bytes: most bytes of calls under way; one call alone may have more.
            abandoned_s: seconds that a call goes on after its last caller has gone.
        """
        self.scorer = scorer
        self._tokenizer = tokenizer
        self._max_memo_bytes = memo_bytes
        self._max_queue_bytes = max_queue_bytes
        self._abandoned_s = abandoned_s
        self._memo: collections.OrderedDict[str, _Answer] = collections.OrderedDict()
        self._memo_bytes = 0
        self._running: dict[str, _Running] = {}
        self._queue_bytes = 0
        self.rows_scored = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.calls_joined = 0
        self.calls_refused = 0
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
        reward_fns_digest: str = "",
        caller: str = "",
    ) -> types_pb2.RewardBatch:
        """Scores the rows of one call.

        Args:
            request_id: id of the call.
            rollouts: the rows.
            step: training step.
            mode: a `shardward.v1.Mode`.
            fingerprint: of the caller's tokenizer; "" is not checked.
            timeout_s: seconds the caller still waits for.
            reward_fns_digest: of the functions that the caller counts on; "" is not checked.
            caller: who takes turns with others where rows wait.

        Raises:
            RequestError: the request can't be scored as it stands.
            TokenizerMismatch: the caller has another tokenizer.
            RewardFnsChanged: the caller counts on other functions.
            TimeoutError: the time ran out.
            WorkersUnavailable: no worker can be reached.
            Draining: the process is about to stop.
            QueueFull: too much is being scored already.
        """
        messages.check_request_id(request_id)
        messages.check_caller(caller)
        if fingerprint and fingerprint != self._tokenizer.fingerprint:
            raise TokenizerMismatch(expected=self._tokenizer.fingerprint, got=fingerprint)
        digest = _digest(rollouts, step, mode, reward_fns_digest)
        answer, running = self._memo.get(request_id), self._running.get(request_id)
        known = answer or running
        if known is not None:
            if known.digest != digest:
                message = f"`request_id` must be new, {request_id!r} was used."
                raise RequestError("request_id", message)
            self.calls_joined += 1
        if answer is not None:
            return answer.rewards
        if running is not None:
            running.deadline.put_off(timeout_s)
        else:
            size = self._admit(rollouts)
            deadline = Deadline(timeout_s)
            task = asyncio.create_task(
                self._score(
                    request_id,
                    rollouts,
                    step=step,
                    mode=mode,
                    deadline=deadline,
                    reward_fns_digest=reward_fns_digest,
                    caller=caller,
                )
            )
            rows = len(rollouts.completion_lengths)
            running = self._running[request_id] = _Running(digest, task, size, rows, deadline)
            self._queue_bytes += size
            task.add_done_callback(functools.partial(self._ended, request_id, running))
        return await self._wait(request_id, running, timeout_s)

    async def _wait(
        self, request_id: str, running: _Running, timeout_s: float
    ) -> types_pb2.RewardBatch:
        """Waits for the answer of a call; the last who goes without leaves it some time."""
        running.waiting += 1
        if running.abandoned is not None:
            running.abandoned.cancel()
        try:
            return await asyncio.wait_for(asyncio.shield(running.task), timeout_s + _GRACE_S)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                running.abandoned = asyncio.get_running_loop().call_later(
                    self._abandoned_s, self._drop, request_id, running
                )

    def _drop(self, request_id: str, running: _Running) -> None:
        """Ends a call that nobody waits for; a caller who comes now begins anew."""
        if self._running.get(request_id) is not running:
            return
        logger.warning(
            "call dropped request_id=%s rows=%d: its caller is gone", request_id, running.rows
        )
        del self._running[request_id]
        self.outcomes["dropped"] += running.rows
        running.task.cancel()

    def count_lost(self, error: Exception, rows: int) -> None:
        """Takes note of rows whose call ends with an error."""
        if isinstance(error, TimeoutError):
            self.outcomes["expired"] += rows
        elif isinstance(error, WorkersUnavailable):
            self.outcomes["unavailable"] += rows
        else:
            self.outcomes["refused"] += rows

    def _admit(self, rollouts: types_pb2.RolloutBatch) -> int:
        """Checks that a new call may be scored now, and returns the bytes it takes."""
        if self.draining:
            raise Draining("this server is stopping; send the call again to the next one.")
        size = messages.queue_bytes(rollouts)
        if self._running and self._queue_bytes + size > self._max_queue_bytes:
            self.calls_refused += 1
            raise QueueFull(
                f"the queue must have at most {self._max_queue_bytes >> 20} MiB"
                f" (--max-queue-mb), got {self._queue_bytes + size >> 20} MiB; send the call"
                " again later."
            )
        return size

    def _ended(
        self, request_id: str, running: _Running, task: asyncio.Task[types_pb2.RewardBatch]
    ) -> None:
        if self._running.get(request_id) is running:
            del self._running[request_id]
        self._queue_bytes -= running.queue_bytes
        if running.abandoned is not None:
            running.abandoned.cancel()
        if not task.cancelled() and task.exception() is None:
            self._remember(request_id, running.digest, task.result())

    async def _score(
        self,
        request_id: str,
        rollouts: types_pb2.RolloutBatch,
        *,
        step: int,
        mode: int,
        deadline: Deadline,
        reward_fns_digest: str,
        caller: str,
    ) -> types_pb2.RewardBatch:
        start = time.monotonic()
        expected = self.scorer.reward_fns_digest
        if reward_fns_digest and reward_fns_digest != expected:
            raise RewardFnsChanged(expected=expected, got=reward_fns_digest)
        reward_fns = self.scorer.reward_fns
        batch = messages.to_batch(
            rollouts, tokenizer=self._tokenizer, reward_fns=reward_fns, step=step, mode=mode
        )
        batch = dataclasses.replace(batch, caller=caller)
        scores = await self.scorer.score(batch, timeout_s=deadline)
        self.rows_scored += batch.rows
        for status, rows in zip(*np.unique(scores.statuses, return_counts=True), strict=True):
            self.outcomes[RowStatus(status).name.lower()] += int(rows)
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
        size = result.ByteSize() + _MEMO_ENTRY_BYTES
        self._memo[request_id] = _Answer(digest, result, size)
        self._memo_bytes += size
        while self._memo_bytes > self._max_memo_bytes and self._memo:
            _, oldest = self._memo.popitem(last=False)
            self._memo_bytes -= oldest.memo_bytes

    def info(self) -> types_pb2.ServiceInfo:
        """Functions, tokenizer, limits and counts."""
        return types_pb2.ServiceInfo(
            reward_fns=[
                types_pb2.RewardFnInfo(
                    name=fn.name,
                    weight=fn.weight,
                    timeout_s=fn.timeout_s,
                    required_columns=fn.required_columns,
                    whole_groups=fn.whole_groups,
                    settings=fn.settings,
                    code_digest=fn.code_digest,
                    columns=fn.columns or (),
                    all_columns=fn.columns is None,
                )
                for fn in self.scorer.reward_fns
            ],
            reward_fns_digest=self.scorer.reward_fns_digest,
            tokenizer_fingerprint=self._tokenizer.fingerprint,
            slots=self.scorer.slots,
            rows_per_slot=self.scorer.rows_per_slot,
            max_message_bytes=MAX_MESSAGE_BYTES,
            version=version(),
            rows_scored=self.rows_scored,
            workers=self.scorer.workers,
            vocab_size=self._tokenizer.vocab_size,
            draining=self.draining,
            calls_joined=self.calls_joined,
            calls_refused=self.calls_refused,
            queue_bytes=self._queue_bytes,
            memo_bytes=self._memo_bytes,
            problem=self.scorer.problem,
            unusable_workers=[
                types_pb2.UnusableWorker(address=address, reason=reason)
                for address, reason in self.scorer.unusable_workers.items()
            ],
        )


def _digest(rollouts: types_pb2.RolloutBatch, *values: int | str) -> _Digest:
    """Tells a retry from another call that was given the same id by mistake.

    Of everything that decides the rewards. A checksum is enough against mistakes, and costs a fifth
    of a cryptographic hash.
    """
    data = rollouts.SerializeToString(deterministic=True)
    return len(data), hash((data, *values))


def version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version("shardward")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
