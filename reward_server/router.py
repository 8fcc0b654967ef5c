# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares the rows of a call among remote reward workers.

Each worker has a channel of its own and at most slots + 1 pieces under way, so slow rows on one
do not hold up the others. A piece whose worker is lost, or does not answer any more, goes to
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
import math
import socket
import time

import grpc
from grpc_status import rpc_status
from shardward.v1 import scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server import messages
from reward_server.batch import Batch, RewardFnInfo, Scores, StartError, WorkersUnavailable
from reward_server.channel import CLIENT_OPTIONS
from reward_server.credentials import ClientCredentials
from reward_server.listen import is_local
from reward_server.pieces import RoutedCall, gather

MAX_PIECE_ROWS = 256
RESOLVE_S = 5.0
RETRY_S = 0.5
INFO_TIMEOUT_S = 5.0
# A worker that has said nothing for PING_EVERY_S while it holds pieces is asked for a sign of life.
# Workers answer while reward functions run, so none within the timeout means stopped or cut off.
PING_EVERY_S = 2.0
PING_TIMEOUT_S = 8.0
START_TIMEOUT_S = 120.0
NOTICE_S = 10.0
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
_DNS = "dns:///"
_MODES = {"train": types_pb2.MODE_TRAIN, "eval": types_pb2.MODE_EVAL}
logger = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class _Worker:
    address: str
    channel: grpc.aio.Channel
    stub: scoring_pb2_grpc.ScoringServiceStub
    info: types_pb2.ServiceInfo | None = None
    listed: bool = True
    rows: int = 0
    pieces: dict[asyncio.Task[None], tuple[RoutedCall, int, int]] = dataclasses.field(
        default_factory=dict
    )
    heard: float = 0.0
    rest_until: float = 0.0
    keeper: asyncio.Task[None] | None = None

    @property
    def free(self) -> int:
        """Pieces it can take now."""
        if not self.listed or self.info is None or time.monotonic() < self.rest_until:
            return 0
        return self.info.slots + 1 - len(self.pieces)


class WorkerRouter:
    """Scores batches on remote workers; a `reward_server.batch.Scorer`."""

    def __init__(
        self, workers: str, *, fingerprint: str, credentials: ClientCredentials | None = None
    ) -> None:
        """Takes addresses and the tokenizer that workers must have.

        Args:
            workers: "HOST:PORT,unix:PATH,..." or "dns:///NAME:PORT", looked up again and again.
            fingerprint: of the tokenizer.
            credentials: to show workers and to know them by.

        Raises:
            StartError: an address is none.
            ConfigError: the credentials don't go with an address.
        """
        check_workers(workers)
        self._spec = workers
        self._name = _dns_name(workers)
        self._fingerprint = fingerprint
        self._credentials = credentials or ClientCredentials(prefix="--workers-")
        for address in workers.split(","):
            self._credentials.check_address(address.strip())
        self._workers: dict[str, _Worker] = {}
        self._reward_fns: tuple[RewardFnInfo, ...] = ()
        self._refusals: dict[str, str] = {}
        self._ids = itertools.count()
        self._prefix = f"{socket.gethostname()}/{time.time_ns()}"
        self._calls: list[RoutedCall] = []
        self._task: asyncio.Task[None] | None = None
        self._available = asyncio.Event()

    @property
    def reward_fns(self) -> tuple[RewardFnInfo, ...]:
        """Functions of the workers."""
        return self._reward_fns

    @property
    def slots(self) -> int:
        """Slots of the workers that can be reached."""
        return sum(w.info.slots for w in self._workers.values() if w.info is not None)

    @property
    def workers(self) -> int:
        """Workers that can be reached."""
        return sum(w.info is not None for w in self._workers.values())

    @property
    def rows_missing(self) -> int:
        """Rows of the calls under way that have no result yet."""
        return sum(call.batch.rows - call.scored for call in self._calls)

    @property
    def rows_queued(self) -> int:
        """Those of them that no worker has."""
        return sum(call.queued for call in self._calls)

    async def start(self) -> None:
        """Waits for the first worker, then keeps looking for others.

        Raises:
            StartError: no worker could be used in time; the message says why, by address.
        """
        self._task = asyncio.create_task(self._watch())
        try:
            await asyncio.wait_for(self._available.wait(), START_TIMEOUT_S)
        except TimeoutError:
            raise StartError(
                f"no worker of {self._spec} can be used within {START_TIMEOUT_S:g} s:"
                f" {self._refusals or 'no address found'}. Start reward-server worker there."
            ) from None

    async def close(self) -> None:
        """Closes all channels."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for worker in self._workers.values():
            await _part(worker)

    async def score(self, batch: Batch, *, timeout_s: float) -> Scores:
        """Scores every row of a batch; see `Scorer.score`."""
        call = RoutedCall(batch, f"{self._prefix}/{next(self._ids)}", timeout_s=timeout_s)
        self._calls.append(call)
        deadline = time.monotonic() + timeout_s
        notice = time.monotonic() + NOTICE_S
        try:
            while call.scored < batch.rows and call.failed is None:
                self._give_out(call, deadline)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._out_of_time(call)
                call.changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(call.changed.wait(), min(RETRY_S, left))
                if time.monotonic() > notice:
                    notice += NOTICE_S
                    self._report(call)
        finally:
            self._calls.remove(call)
            for task in call.running:
                task.cancel()
        if call.failed is not None:
            raise call.failed
        return gather(call, len(self._reward_fns))

    def _report(self, call: RoutedCall) -> None:
        logger.warning(
            "call waits request_id=%s rows=%d scored=%d queued=%d workers=%d unusable=%s",
            call.request_id,
            call.batch.rows,
            call.scored,
            call.queued,
            self.workers,
            self._refusals,
        )

    def _wake(self) -> None:
        # Oldest first: a slot that is free now goes to the call that waits longest.
        for call in self._calls:
            call.changed.set()

    def _out_of_time(self, call: RoutedCall) -> Exception:
        text = f"{call.batch.rows - call.scored} of {call.batch.rows} rows have no reward"
        if not self.workers:
            return WorkersUnavailable(f"{text}: no worker of {self._spec} can be reached.")
        return TimeoutError(f"{text} after {call.timeout_s:.1f} s.")

    def _give_out(self, call: RoutedCall, deadline: float) -> None:
        while call.queued:
            worker = max(self._workers.values(), key=lambda w: w.free, default=None)
            if worker is None or worker.free <= 0:
                return
            rows = math.ceil(call.queued / (4 * max(self.slots, 1)))
            start, stop = call.take(max(1, min(MAX_PIECE_ROWS, rows)))
            if not worker.pieces:
                worker.heard = time.monotonic()
            task = asyncio.create_task(self._send(call, worker, start, stop, deadline))
            worker.pieces[task] = call, start, stop
            call.running.add(task)
            task.add_done_callback(functools.partial(self._ended, call, worker))

    async def _send(
        self, call: RoutedCall, worker: _Worker, start: int, stop: int, deadline: float
    ) -> None:
        request = scoring_pb2.ScoreRequest(
            request_id=f"{call.request_id}/{start}-{stop}",
            rollouts=messages.from_batch(call.batch, start, stop),
            step=call.batch.step,
            mode=_MODES[call.batch.mode],
            tokenizer_fingerprint=self._fingerprint,
        )
        try:
            response = await worker.stub.Score(
                request,
                timeout=max(deadline - time.monotonic(), 0.01),
                metadata=self._credentials.metadata,
            )
            if list(response.row_ids) != call.batch.row_ids[start:stop]:
                raise ValueError(f"worker {worker.address} answered other rows than were sent.")  # noqa: TRY301
            names = [fn.name for fn in self._reward_fns]
            if list(response.rewards.reward_fns) != names:
                # Started anew with other functions, between two calls: asked again what it is.
                self._lose(worker, f"scored {list(response.rewards.reward_fns)}, not {names}")
                call.again.append((start, stop))
                return
            scores = messages.to_scores(response.rewards, stop - start)
            errors = [dataclasses.replace(e, worker=worker.address) for e in scores.errors]
            call.pieces[start] = dataclasses.replace(scores, errors=errors)
            worker.rows += stop - start
            worker.heard = time.monotonic()
        except grpc.aio.AioRpcError as error:
            self._failed(call, worker, (start, stop), error)
        except Exception as error:  # noqa: BLE001 - any error ends the call, none may hang it
            call.failed = error

    def _ended(self, call: RoutedCall, worker: _Worker, task: asyncio.Task[None]) -> None:
        worker.pieces.pop(task, None)
        call.running.discard(task)
        self._wake()

    def _failed(
        self, call: RoutedCall, worker: _Worker, rows: tuple[int, int], error: grpc.aio.AioRpcError
    ) -> None:
        code = error.code()
        text = f"{code.name}: {error.details()}"
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            call.again.append(rows)
            call.failed = self._out_of_time(call)
        elif code in _LOST or (code in _BROKEN and rpc_status.from_call(error) is None):
            self._lose(worker, text)
            call.again.append(rows)
        elif code == grpc.StatusCode.RESOURCE_EXHAUSTED and rpc_status.from_call(error) is not None:
            # Its queue is full of the pieces of other servers.
            worker.rest_until = time.monotonic() + RETRY_S
            call.again.append(rows)
        else:
            call.failed = RuntimeError(f"worker {worker.address} refused rows: {text}")

    def _lose(self, worker: _Worker, reason: str) -> None:
        if worker.info is not None:
            logger.warning("worker left address=%s reason=%s", worker.address, reason)
        worker.info = None
        self._refusals[worker.address] = reason

    async def _watch(self) -> None:
        while True:
            try:
                await self._resolve()
            except Exception:  # the watch must go on, or no worker would ever join again
                logger.exception("watch failed")
            await asyncio.sleep(RESOLVE_S if self._workers else RETRY_S)

    async def _keep(self, worker: _Worker) -> None:
        """Joins a worker whenever it can be used, and takes pieces back when it falls silent."""
        while True:
            try:
                if worker.info is None:
                    await self._meet(worker)
                elif worker.pieces and time.monotonic() - worker.heard > PING_EVERY_S:
                    await self._ping(worker)
            except Exception:  # as above
                logger.exception("watch failed address=%s", worker.address)
            await asyncio.sleep(RETRY_S)

    async def _ping(self, worker: _Worker) -> None:
        asked = time.monotonic()
        try:
            await worker.stub.GetInfo(
                scoring_pb2.ScoringServiceGetInfoRequest(),
                timeout=PING_TIMEOUT_S,
                metadata=self._credentials.metadata,
            )
        except grpc.aio.AioRpcError as error:
            # Other codes come from a worker that drains, or show at the pieces by themselves.
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED or worker.heard > asked:
                return
        else:
            worker.heard = time.monotonic()
            return
        self._lose(worker, f"no sign of life for {PING_TIMEOUT_S:g} s")
        for task, (call, start, stop) in worker.pieces.items():
            if not task.done() and task.cancel():
                call.again.append((start, stop))
        worker.pieces.clear()
        self._wake()

    async def _resolve(self) -> None:
        try:
            addresses = await _addresses(self._spec)
        except OSError as error:
            # Those known stay: a name server that is down says nothing about workers.
            logger.warning("lookup failed workers=%s: %s", self._spec, error)
            return
        for address in addresses:
            if address not in self._workers:
                channel = self._channel(address)
                stub = scoring_pb2_grpc.ScoringServiceStub(channel)
                worker = self._workers[address] = _Worker(address, channel, stub)
                worker.keeper = asyncio.create_task(self._keep(worker))
        for address, worker in list(self._workers.items()):
            worker.listed = address in addresses
            if not worker.listed and not worker.pieces:
                del self._workers[address]
                self._refusals.pop(address, None)
                await _part(worker)
                logger.info("worker left address=%s reason=no longer listed", address)

    def _channel(self, address: str) -> grpc.aio.Channel:
        tls = self._credentials.for_channel()
        if tls is None:
            if self._credentials.token and not is_local(address):
                logger.warning(
                    "token is sent without TLS address=%s: pass --workers-tls-ca", address
                )
            return grpc.aio.insecure_channel(address, CLIENT_OPTIONS)
        options: tuple[tuple[str, str | int], ...] = CLIENT_OPTIONS
        if self._name is not None:
            # Its addresses are dialled, but the certificate holds its name.
            options = (*options, ("grpc.default_authority", self._name))
        return grpc.aio.secure_channel(address, tls, options)

    async def _meet(self, worker: _Worker) -> None:
        try:
            response = await worker.stub.GetInfo(
                scoring_pb2.ScoringServiceGetInfoRequest(),
                timeout=INFO_TIMEOUT_S,
                metadata=self._credentials.metadata,
            )
        except grpc.aio.AioRpcError as error:
            self._unmet(worker.address, error)
            return
        if response.info.draining:
            self._refusals[worker.address] = "it is draining"
            return
        problem = self._problem(response.info)
        if problem:
            self._refuse(worker.address, problem)
            return
        self._refusals.pop(worker.address, None)
        worker.info = response.info
        logger.info("worker joined address=%s slots=%d", worker.address, worker.info.slots)
        self._available.set()
        self._wake()

    def _unmet(self, address: str, error: grpc.aio.AioRpcError) -> None:
        """Notes why a worker can't be asked; at once, aloud and once if waiting does not help."""
        details = error.details() or ""
        remedy = self._credentials.explain(details, address, host=self._name)
        text = f"{error.code().name}: {details}"
        if remedy or error.code() == grpc.StatusCode.UNAUTHENTICATED:
            self._refuse(address, f"{text} {remedy}".strip())
        else:
            self._refusals[address] = f"{text} {self._credentials.guess(details)}".strip()

    def _refuse(self, address: str, problem: str) -> None:
        if self._refusals.get(address) != problem:
            logger.error("worker refused address=%s: %s", address, problem)
        self._refusals[address] = problem

    def _problem(self, info: types_pb2.ServiceInfo) -> str:
        if info.tokenizer_fingerprint != self._fingerprint:
            return (
                f"its tokenizer is {info.tokenizer_fingerprint[:12]}, this server's is"
                f" {self._fingerprint[:12]}"
            )
        fns = tuple(
            RewardFnInfo(
                name=fn.name,
                weight=fn.weight,
                timeout_s=fn.timeout_s,
                required_columns=tuple(fn.required_columns),
                settings_digest=fn.settings_digest,
                whole_groups=fn.whole_groups,
            )
            for fn in info.reward_fns
        )
        if not self._reward_fns:
            self._reward_fns = fns
        if fns != self._reward_fns:
            return f"its reward functions are {fns}, those of the others {self._reward_fns}"
        return ""


async def _part(worker: _Worker) -> None:
    if worker.keeper is not None:
        worker.keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker.keeper
    await worker.channel.close()


def check_workers(spec: str) -> None:
    """Checks addresses of workers.

    Raises:
        StartError: one of them has no port.
    """
    for address in spec.split(",") if not spec.startswith(_DNS) else [spec.removeprefix(_DNS)]:
        host, _, port = address.strip().rpartition(":")
        if address.strip().startswith("unix:"):
            continue
        if not host or not port.isdigit():
            raise StartError(
                "`--workers` must be HOST:PORT,..., unix:PATH,... or dns:///NAME:PORT,"
                f" got {address!r}."
            )


def _dns_name(spec: str) -> str | None:
    return spec.removeprefix(_DNS).rpartition(":")[0] if spec.startswith(_DNS) else None


async def _addresses(spec: str) -> list[str]:
    if not spec.startswith(_DNS):
        return [address.strip() for address in spec.split(",") if address.strip()]
    host, _, port = spec.removeprefix(_DNS).rpartition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    return sorted(
        {f"[{a[4][0]}]:{port}" if ":" in str(a[4][0]) else f"{a[4][0]}:{port}" for a in found}
    )
