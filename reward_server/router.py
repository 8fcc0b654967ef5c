# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares the rows of calls among remote reward workers.

Each worker has a channel of its own and no more pieces under way than it can work on, so slow rows
on one do not hold up the others. A piece whose worker is lost, or does not answer any more, goes to
another; its rows are numbered by the request id of the piece, so a worker that did score them
answers from memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
import random
import socket
import time

import grpc
from shardward.status import status_details
from shardward.v1 import scoring_pb2, types_pb2

from reward_server import messages
from reward_server.batch import Batch, Deadline, RewardFnInfo, Scores, WorkersUnavailable
from reward_server.credentials import ClientCredentials
from reward_server.membership import Membership
from reward_server.piece_size import PieceSize
from reward_server.pieces import RoutedCall, gather
from reward_server.remote_worker import Piece, RemoteWorker, reason
from reward_server.status import RewardFnsChanged
from reward_server.turns import Turns

NOTICE_S = 10.0
# Pieces are sent before a slot is free while more than so many rows wait for each slot.
_AHEAD_ROWS = 3
# A worker whose queue is full gets nothing for so long.
REST_S = 0.5
# Codes after which a piece goes to another worker: the connection was lost, the worker drains or
# was started anew with another tokenizer or token. A broken connection shows as _BROKEN without
# details.
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
)
_BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
# A worker's clock may end a piece so much too early; before that, its call has been put off.
_PUT_OFF_S = 0.1
_MODES = {"train": types_pb2.MODE_TRAIN, "eval": types_pb2.MODE_EVAL}
logger = logging.getLogger(__name__)


class WorkerRouter:
    """Scores batches on remote workers; a `reward_server.batch.Scorer`."""

    def __init__(
        self,
        workers: str,
        *,
        fingerprint: str,
        credentials: ClientCredentials | None = None,
        worker_slots: int | None = None,
    ) -> None:
        """Takes addresses and the tokenizer that workers must have.

        Args:
            workers: see `reward_server.discovery.parse`.
            fingerprint: of the tokenizer.
            credentials: to show workers and to know them by.
            worker_slots: slots behind each address, for load balancers; None asks.

        Raises:
            StartError: an address is none.
            ConfigError: the credentials don't go with an address.
        """
        self._spec = workers
        self._fingerprint = fingerprint
        self._credentials = credentials or ClientCredentials(prefix="--workers-")
        self._workers = Membership(
            workers,
            fingerprint=fingerprint,
            credentials=self._credentials,
            slots=worker_slots,
            on_change=self._dispatch,
            on_silent=self._again,
            on_new_functions=self._end_calls,
        )
        self._ids = itertools.count()
        self._name = f"{socket.gethostname()}/{time.time_ns()}"
        self._calls: Turns[RoutedCall] = Turns()
        self._under_way: set[RoutedCall] = set()
        self._size = PieceSize()

    @property
    def reward_fns(self) -> tuple[RewardFnInfo, ...]:
        """Functions of the workers."""
        return self._workers.reward_fns

    @property
    def reward_fns_digest(self) -> str:
        """Hash of what decides their rewards."""
        return self._workers.reward_fns_digest

    @property
    def slots(self) -> int:
        """Slots of the workers that may get rows."""
        return self._workers.slots

    @property
    def rows_per_slot(self) -> int:
        """Rows that a slot of the workers works on side by side."""
        return max((worker.rows_per_slot for worker in self._workers), default=1)

    @property
    def workers(self) -> int:
        """Workers that may get rows."""
        return self._workers.usable

    @property
    def unusable_workers(self) -> dict[str, str]:
        """Why others get none, by address."""
        return self._workers.refusals

    @property
    def children(self) -> dict[str, int]:
        """None: workers have them."""
        return {}

    @property
    def problem(self) -> str:
        """Why no row can be scored now, or ""."""
        return self._workers.problem

    @property
    def rows_missing(self) -> int:
        """Rows of the calls under way that have no result yet."""
        given = (piece for worker in self._workers for piece in worker.pieces.values())
        return self.rows_queued + sum(piece.stop - piece.start for piece in given)

    @property
    def rows_queued(self) -> int:
        """Those of them that no worker has."""
        return self._calls.queued

    async def start(self) -> None:
        """Waits for the first worker, then keeps looking for others.

        Raises:
            StartError: no worker could be used in time; the message says why, by address.
        """
        await self._workers.start()

    async def close(self) -> None:
        """Closes all channels."""
        await self._workers.close()

    async def score(self, batch: Batch, *, timeout_s: float | Deadline) -> Scores:
        """Scores every row of a batch; see `Scorer.score`."""
        request_id = f"{self._name}/{next(self._ids)}"
        call = RoutedCall(
            batch,
            request_id,
            reward_fns=self.reward_fns,
            reward_fns_digest=self.reward_fns_digest,
            deadline=Deadline.of(timeout_s),
        )
        if batch.rows:
            self._under_way.add(call)
            self._calls.append(call)
            self._dispatch()
            await self._wait(call)
        return gather(call)

    async def _wait(self, call: RoutedCall) -> None:
        try:
            while not call.ended.is_set():
                left = call.deadline.left_s()
                if left <= 0:
                    raise self._out_of_time(call)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(call.ended.wait(), min(NOTICE_S, left))
                    break
                if left > NOTICE_S:
                    self._report(call)
            if call.failed is not None:
                raise call.failed
        finally:
            call.ended.set()
            self._under_way.discard(call)
            self._calls.discard(call)
            for task in call.running:
                task.cancel()

    def _report(self, call: RoutedCall) -> None:
        logger.warning(
            "call waits request_id=%s rows=%d scored=%d queued=%d workers=%d unusable=%s",
            call.request_id,
            call.batch.rows,
            call.scored,
            call.queued,
            self.workers,
            self._workers.refusals,
        )

    def _out_of_time(self, call: RoutedCall) -> Exception:
        text = f"{call.batch.rows - call.scored} of {call.batch.rows} rows have no reward"
        if self.problem:
            return WorkersUnavailable(
                f"{text}: no worker of {self._spec} can be reached; {self.problem}."
            )
        return TimeoutError(f"{text} after {call.deadline.timeout_s:.1f} s.")

    def _dispatch(self) -> None:
        """Gives out rows as long as a worker can take some; calls of other callers in turn."""
        while queued := self._calls.queued:
            slots = self.slots
            # Towards the end a piece that is sent ahead would wait while a worker has nothing.
            ahead = queued > _AHEAD_ROWS * slots * self.rows_per_slot
            free = {worker: worker.free(ahead=ahead) for worker in self._workers}
            # Servers that share idle workers must not all begin with the same one.
            worker = max(free, key=lambda worker: (free[worker], random.random()), default=None)  # noqa: S311
            if worker is None or free[worker] <= 0 or (call := self._calls.take()) is None:
                return
            rows = self._size.rows(
                queued,
                slots=slots,
                free=sum(max(0, pieces) for pieces in free.values()),
                rows_per_slot=worker.rows_per_slot,
            )
            piece = Piece(call, *call.take(rows))
            task = asyncio.create_task(self._send(worker, piece))
            worker.add(task, piece)
            call.running.add(task)
            task.add_done_callback(functools.partial(self._ended, worker, call))

    async def _send(self, worker: RemoteWorker, piece: Piece) -> None:
        call, start, stop = piece.call, piece.start, piece.stop
        request = scoring_pb2.ScoreRequest(
            request_id=f"{call.request_id}/{start}-{stop}",
            rollouts=messages.from_batch(call.batch, start, stop),
            step=call.batch.step,
            mode=_MODES[call.batch.mode],
            tokenizer_fingerprint=self._fingerprint,
            caller=self._name,
            reward_fns_digest=call.reward_fns_digest,
        )
        try:
            response = await worker.stub.Score(
                request,
                timeout=max(call.deadline.left_s(), 0.01),
                metadata=self._credentials.metadata,
            )
            self._store(worker, piece, response)
        except grpc.aio.AioRpcError as error:
            self._failed(worker, piece, error)
        except Exception as error:  # noqa: BLE001 - any error ends the call, none may hang it
            call.fail(error)

    def _store(
        self, worker: RemoteWorker, piece: Piece, response: scoring_pb2.ScoreResponse
    ) -> None:
        call, start, stop = piece.call, piece.start, piece.stop
        names = [fn.name for fn in call.reward_fns]
        if list(response.rewards.reward_fns) != names:
            # Started anew with other functions, between two calls: asked again what it is.
            got = list(response.rewards.reward_fns)
            self._workers.lose(worker, f"scored {got}, not {names}")
            self._again(piece)
            return
        try:
            scores = _scores(response, call.batch.row_ids[start:stop])
        except ValueError as error:
            # Others may answer better. If none does, the call ends at its deadline.
            self._workers.lose(worker, f"answered what can't be used: {error}")
            self._again(piece)
            return
        errors = [dataclasses.replace(e, worker=worker.address) for e in scores.errors]
        call.store(start, dataclasses.replace(scores, errors=errors))
        rows = stop - start
        self._size.observe(rows, scores.decode_s + float(scores.score_s.sum()))
        worker.answered(waited_s=scores.queue_s, piece_s=rows * (self._size.row_s or 0.0))

    def _ended(self, worker: RemoteWorker, call: RoutedCall, task: asyncio.Task[None]) -> None:
        worker.pieces.pop(task, None)
        call.running.discard(task)
        self._dispatch()

    def _again(self, piece: Piece) -> None:
        piece.call.again.append((piece.start, piece.stop))
        self._calls.append(piece.call)

    def _end_calls(self, what: str) -> None:
        """Ends calls that began with functions that no worker has any more."""
        now = self.reward_fns_digest
        for call in self._under_way:
            if call.reward_fns_digest != now:
                call.fail(RewardFnsChanged(expected=now, got=call.reward_fns_digest, cause=what))

    def _failed(self, worker: RemoteWorker, piece: Piece, error: grpc.aio.AioRpcError) -> None:
        call, code = piece.call, error.code()
        text = reason(error)
        if code == grpc.StatusCode.DEADLINE_EXCEEDED and call.deadline.left_s() > _PUT_OFF_S:
            self._again(piece)
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            call.fail(self._out_of_time(call))
        elif code in _LOST or (code in _BROKEN and not status_details(error).is_ours):
            self._workers.lose(worker, text)
            self._again(piece)
        elif code == grpc.StatusCode.RESOURCE_EXHAUSTED and status_details(error).is_ours:
            # Its queue is full of the pieces of other servers.
            worker.rest_until = time.monotonic() + REST_S
            asyncio.get_running_loop().call_later(REST_S, self._dispatch)
            self._again(piece)
        else:
            call.fail(RuntimeError(f"worker {worker.address} refused rows: {text}"))


def _scores(response: scoring_pb2.ScoreResponse, row_ids: list[int]) -> Scores:
    """Reads an answer to rows; raises ValueError if it can't be used."""
    if list(response.row_ids) != row_ids:
        raise ValueError("`row_ids` must be those that were sent.")
    return messages.to_scores(response.rewards, len(row_ids))
