# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The workers of a router: found, met, watched, left.

Which worker gets which rows is decided in `reward_server.router`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence

import grpc
from shardward.addresses import is_local
from shardward.changes import changes
from shardward.targets import Refused
from shardward.v1 import types_pb2

from reward_server import discovery
from reward_server.batch import RewardFnInfo, StartError
from reward_server.channel import CLIENT_OPTIONS
from reward_server.config import ConfigError
from reward_server.credentials import ClientCredentials
from reward_server.remote_worker import Piece, RemoteWorker, reason

RETRY_S = 0.5
NOTICE_S = 10.0
INFO_TIMEOUT_S = 5.0
# A worker that has said nothing for PING_EVERY_S while it holds pieces is asked for a sign of life,
# others less often, and at once when the connection breaks. Workers answer while reward functions
# run, so none within the timeout means stopped or cut off.
PING_EVERY_S = 2.0
PING_IDLE_S = 5.0
PING_TIMEOUT_S = 8.0
START_TIMEOUT_S = 120.0
# A worker that is started again must find its place kept.
TAKE_OVER_S = 30.0
_SHOWN = 5
logger = logging.getLogger(__name__)


class Membership:
    """Workers that may be used, kept up to date while it runs.

    Attributes:
        reward_fns: functions of the workers: those of the first one that was met, until none has
            been there with them for TAKE_OVER_S and another one is.
        reward_fns_digest: hash of what decides their rewards.
        refusals: why workers can't be used, by address.
    """

    def __init__(
        self,
        spec: str,
        *,
        fingerprint: str,
        credentials: ClientCredentials,
        slots: int | None,
        on_change: Callable[[], None],
        on_silent: Callable[[Piece], None],
        on_new_functions: Callable[[str], None],
    ) -> None:
        """Takes where they are and what they must be.

        Args:
            spec: value of `--workers`.
            fingerprint: of the tokenizer.
            credentials: to show workers and to know them by.
            slots: of each address, or None for those that a worker says it has.
            on_change: called when rows may be given out that could not before.
            on_silent: called for each piece of a worker that does not answer any more.
            on_new_functions: called with what is new when other functions were taken over.

        Raises:
            StartError: the spec is none.
            ConfigError: the credentials don't go with an address.
        """
        self._spec = spec
        self._discovery = discovery.parse(spec)
        self._fingerprint = fingerprint
        self._credentials = credentials
        for address in spec.split(","):
            credentials.check_address(address.strip())
        self._slots = slots
        self._on_change = on_change
        self._on_silent = on_silent
        self._on_new_functions = on_new_functions
        self._by_address: dict[str, RemoteWorker] = {}
        self._unlisted = ""
        self._task: asyncio.Task[None] | None = None
        self._reporter: asyncio.Task[None] | None = None
        self._met = asyncio.Event()
        self._offered: Sequence[types_pb2.RewardFnInfo] = ()
        self._last_usable = -math.inf
        self.reward_fns: tuple[RewardFnInfo, ...] = ()
        self.reward_fns_digest = ""
        self.refusals: dict[str, str] = {}

    def __iter__(self) -> Iterator[RemoteWorker]:
        """All workers that are listed or have something to do."""
        return iter(self._by_address.values())

    def __getitem__(self, address: str) -> RemoteWorker:
        """The worker at an address."""
        return self._by_address[address]

    @property
    def usable(self) -> int:
        """Workers that may get rows."""
        return sum(worker.usable for worker in self)

    @property
    def problem(self) -> str:
        """Why no worker may get rows, by address; "" if one may."""
        if self.usable:
            return ""
        reasons = [f"{address} {why}" for address, why in self.refusals.items()]
        if len(reasons) > _SHOWN:
            reasons[_SHOWN:] = [f"and {len(reasons) - _SHOWN} more"]
        why = "; ".join(reasons) or self._unlisted or "none has answered yet"
        return f"0 of {len(self._by_address)} workers usable: {why}"

    @property
    def slots(self) -> int:
        """Slots of those."""
        return sum(worker.slots for worker in self if worker.usable)

    async def start(self) -> None:
        """Waits for the first worker, then keeps looking for others.

        Raises:
            StartError: no worker could be used in time; the message says why, by address.
        """
        self._task = asyncio.create_task(self._watch())
        self._reporter = asyncio.create_task(self._report())
        try:
            await asyncio.wait_for(self._met.wait(), START_TIMEOUT_S)
        except TimeoutError:
            raise StartError(
                f"no worker of {self._spec} can be used within {START_TIMEOUT_S:g} s:"
                f" {self.problem}."
                " Start reward-server worker there."
            ) from None

    async def close(self) -> None:
        """Closes all channels."""
        for task in (self._task, self._reporter):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        for worker in self:
            await worker.close()

    def lose(self, worker: RemoteWorker, reason: str) -> None:
        """Gives a worker no more rows until it has been met again."""
        if worker.info is not None:
            logger.warning("worker left address=%s reason=%s", worker.address, reason)
        worker.info = None
        self.refusals[worker.address] = reason

    async def _report(self) -> None:
        """Says again and again that no worker can be used, while that is so."""
        while True:
            await asyncio.sleep(NOTICE_S)
            if self.problem:
                logger.warning("rows can't be scored: %s", self.problem)

    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:  # the watch must go on, or no worker would ever join again
                logger.exception("watch failed")
            if self._discovery.every_s is None:
                return
            await asyncio.sleep(self._discovery.every_s if self._by_address else RETRY_S)

    async def _look(self) -> None:
        try:
            addresses = await self._discovery.look()
            for address in addresses:
                self._credentials.check_address(address)
        except (discovery.Unlisted, ConfigError) as error:
            # Those known stay: a name server that is down says nothing about workers.
            if self._unlisted != str(error):
                logger.warning("workers stay as they are, %d: %s", len(self._by_address), error)
            self._unlisted = str(error)
            return
        self._unlisted = ""
        for address in addresses:
            if address not in self._by_address:
                worker = self._by_address[address] = RemoteWorker(address, self._dial)
                worker.keeper = asyncio.create_task(self._keep(worker))
        for address, worker in list(self._by_address.items()):
            if worker.listed and address not in addresses:
                logger.info("worker leaves address=%s pieces=%d", address, len(worker.pieces))
            worker.listed = address in addresses
            if not worker.listed and not worker.pieces:
                del self._by_address[address]
                self.refusals.pop(address, None)
                await worker.close()
                logger.info("worker left address=%s reason=no longer listed", address)
        self._on_change()

    def _dial(self, target: str) -> grpc.aio.Channel:
        tls = self._credentials.for_channel()
        if tls is None:
            if self._credentials.token and not is_local(target):
                logger.warning(
                    "token is sent without TLS address=%s: pass --workers-tls-ca", target
                )
            return grpc.aio.insecure_channel(target, CLIENT_OPTIONS)
        options: tuple[tuple[str, str | int], ...] = CLIENT_OPTIONS
        if self._discovery.host is not None:
            # Its addresses are dialled, but the certificate holds its name.
            options = (*options, ("grpc.default_authority", self._discovery.host))
        return grpc.aio.secure_channel(target, tls, options)

    async def _keep(self, worker: RemoteWorker) -> None:
        """Meets a worker whenever it can be used, and leaves it when it falls silent."""
        while True:
            try:
                if worker.usable:
                    self._last_usable = time.monotonic()
                if worker.info is None:
                    await self._meet(worker)
                elif worker.broken or time.monotonic() - worker.heard > (
                    PING_EVERY_S if worker.pieces else PING_IDLE_S
                ):
                    await self._ping(worker)
            except Exception:  # as above
                logger.exception("watch failed address=%s", worker.address)
            await asyncio.sleep(RETRY_S)

    async def _ping(self, worker: RemoteWorker) -> None:
        asked = time.monotonic()
        try:
            info = await worker.ask(timeout_s=PING_TIMEOUT_S, metadata=self._credentials.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                # Its pieces, if it has any, end by themselves.
                self.lose(worker, reason(error))
                return
            if worker.heard > asked:
                return
        else:
            worker.heard = time.monotonic()
            if problem := self._state(info) or self._problem(info):
                self.lose(worker, problem)
            elif self._slots is None and info.slots != worker.slots:
                worker.meet(info, info.slots)
            return
        self.lose(worker, f"no sign of life for {PING_TIMEOUT_S:g} s")
        for task, piece in worker.pieces.items():
            if not task.done() and task.cancel():
                self._on_silent(piece)
        worker.pieces.clear()
        self._on_change()

    async def _meet(self, worker: RemoteWorker) -> None:
        try:
            await worker.connect()
            info = await worker.ask(timeout_s=INFO_TIMEOUT_S, metadata=self._credentials.metadata)
        except grpc.aio.AioRpcError as error:
            self._unmet(worker.address, error)
            return
        except Refused as error:
            self._refuse(worker.address, str(error))
            return
        if state := self._state(info):
            self._note(worker.address, state)
            return
        problem = self._problem(info)
        if problem:
            self._refuse(worker.address, problem)
            return
        self.refusals.pop(worker.address, None)
        worker.meet(info, self._slots or info.slots)
        logger.info("worker joined address=%s slots=%d", worker.address, worker.slots)
        self._met.set()
        self._on_change()

    def _unmet(self, address: str, error: grpc.aio.AioRpcError) -> None:
        """Notes why a worker can't be asked; at once, aloud and once if waiting does not help."""
        details = error.details() or ""
        remedy = self._credentials.explain(details, address, host=self._discovery.host)
        text = reason(error)
        if remedy or error.code() == grpc.StatusCode.UNAUTHENTICATED:
            self._refuse(address, f"{text} {remedy}".strip())
        else:
            self._note(address, f"{text} {self._credentials.guess(details)}".strip())

    def _state(self, info: types_pb2.ServiceInfo) -> str:
        """Why a worker takes no rows now, by its own account; "" if it does."""
        if info.draining:
            return "it is draining"
        # What is behind a load balancer is its business: another worker may answer next.
        if info.slots or self._slots is not None:
            return ""
        return info.problem or "it has no slots"

    def _note(self, address: str, why: str) -> None:
        """Notes why a worker can't be used; aloud if that is news."""
        if address not in self.refusals:
            logger.warning("worker can't be used yet address=%s reason=%s", address, why)
        self.refusals[address] = why

    def _refuse(self, address: str, problem: str) -> None:
        if self.refusals.get(address) != problem:
            logger.error("worker refused address=%s: %s", address, problem)
        self.refusals[address] = problem

    def _problem(self, info: types_pb2.ServiceInfo) -> str:
        if info.tokenizer_fingerprint != self._fingerprint:
            return (
                f"its tokenizer is {info.tokenizer_fingerprint[:12]}, this server's is"
                f" {self._fingerprint[:12]}"
            )
        if self._offered and info.reward_fns_digest != self.reward_fns_digest:
            alone_s = time.monotonic() - self._last_usable
            if self.usable or alone_s < TAKE_OVER_S:
                others = changes(info.reward_fns, self._offered, before_is="others")
                return f"its reward functions are not those of the others: {others}"
        self._take(info)
        return ""

    def _take(self, info: types_pb2.ServiceInfo) -> None:
        """Takes functions over, if they are new: those of the first worker, or of a new set."""
        before, self._offered = self._offered, info.reward_fns
        if before and info.reward_fns_digest == self.reward_fns_digest:
            return
        self.reward_fns = tuple(
            RewardFnInfo(
                name=fn.name,
                weight=fn.weight,
                timeout_s=fn.timeout_s,
                required_columns=tuple(fn.required_columns),
                whole_groups=fn.whole_groups,
                settings=dict(fn.settings),
                code_digest=fn.code_digest,
                columns=None
                if fn.all_columns or not fn.HasField("all_columns")
                else tuple(fn.columns),
            )
            for fn in info.reward_fns
        )
        self.reward_fns_digest = info.reward_fns_digest
        if before:
            what = changes(info.reward_fns, before)
            logger.warning("reward functions taken over from new workers: %s", what)
            self._on_new_functions(what)
