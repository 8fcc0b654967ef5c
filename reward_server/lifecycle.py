# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Start, serve, drain, stop: the life of a server or worker process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from reward_server.batch import Scorer
from reward_server.channel import HEALTH_OPTIONS, SERVER_OPTIONS
from reward_server.decode import Tokenizer
from reward_server.handler import Handler
from reward_server.listen import Listen
from reward_server.metrics import metrics_port
from reward_server.unix_socket import hold

LAME_DUCK_S = 0.5
# Health service that says only that the process lives: no reason to end it is that others don't.
ALIVE = "alive"
_HEALTH_EVERY_S = 0.5
# A worker that is restarted, or a child that is replaced, is no outage.
_OUTAGE_S = 2.0
# What stopping takes at most beyond drain_s; then the process is ended.
STOP_MARGIN_S = 15.0
EXIT_NOT_STOPPED = 1
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a process serves.

    Attributes:
        name: full gRPC name.
        add: adds the servicer of a handler to a server.
        abandoned_s: seconds that a call goes on after its caller has gone.
    """

    name: str
    add: Callable[[Handler, grpc.aio.Server], None]
    abandoned_s: float


async def run(
    *,
    listen: Listen,
    drain_s: float,
    max_queue_bytes: int,
    tokenizer: Tokenizer,
    scorer: Scorer,
    service: Service,
) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, then drains.

    The process ends at the latest drain_s and STOP_MARGIN_S after the signal, whatever hangs.

    Raises:
        StartError: the process can't start; the message says what to change.
    """
    with hold(listen.address) as path:
        interceptors = listen.credentials.interceptors()
        server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        health = grpc_health.aio.HealthServicer()
        handler = Handler(
            scorer, tokenizer, max_queue_bytes=max_queue_bytes, abandoned_s=service.abandoned_s
        )
        service.add(handler, server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        names = (service.name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
        stop = _signals(drain_s)
        starting = asyncio.ensure_future(scorer.start())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return
            starting.result()
            address = listen.bind(server, path)
            async with _health_port(listen, health), metrics_port(listen, handler):
                await server.start()
                for name in ("", service.name, ALIVE):
                    await health.set(name, health_pb2.HealthCheckResponse.SERVING)
                watching = asyncio.create_task(
                    _keep_health(health, ("", service.name), scorer), name="health"
                )
                fns = ",".join(fn.name for fn in scorer.reward_fns)
                logger.info("ready listen=%s slots=%d reward_fns=%s", address, scorer.slots, fns)
                await stopping
                watching.cancel()
                logger.info("draining drain_s=%g", drain_s)
                handler.draining = True
                await health.enter_graceful_shutdown()
                await asyncio.sleep(LAME_DUCK_S)
                await server.stop(drain_s)
        finally:
            stopping.cancel()
            await scorer.close()
            await server.stop(0)
        logger.info("stopped rows_scored=%d", handler.rows_scored)


async def _keep_health(
    health: grpc_health.aio.HealthServicer, names: Sequence[str], scorer: Scorer
) -> None:
    """Says NOT_SERVING while no row can be scored, and SERVING again when one can."""
    serving, well = True, time.monotonic()
    while True:
        await asyncio.sleep(_HEALTH_EVERY_S)
        problem = scorer.problem
        if not problem:
            well = time.monotonic()
        if serving is (not problem) or (problem and time.monotonic() - well < _OUTAGE_S):
            continue
        serving = not problem
        state = health_pb2.HealthCheckResponse.ServingStatus.Value(
            "SERVING" if serving else "NOT_SERVING"
        )
        for name in names:
            await health.set(name, state)
        if serving:
            logger.info("health status=SERVING")
        else:
            logger.error("health status=NOT_SERVING: %s", problem)


@contextlib.asynccontextmanager
async def _health_port(
    listen: Listen, health: grpc_health.aio.HealthServicer
) -> AsyncIterator[None]:
    """Answers health checks on a port of their own, if there is one, until the block ends."""
    if listen.health_address is None:
        yield
        return
    server = grpc.aio.server(options=HEALTH_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    address = listen.bind_health(server)
    await server.start()
    logger.info("health checks listen=%s", address)
    try:
        yield
    finally:
        await server.stop(0)


def _signals(drain_s: float) -> asyncio.Event:
    """An event that SIGTERM, SIGINT or SIGHUP sets; the second signal ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()
        limit = threading.Timer(drain_s + STOP_MARGIN_S, _end, (drain_s,))
        limit.daemon = True
        limit.start()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # `nohup` has SIGHUP ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)
    return stop


def _end(drain_s: float) -> None:
    """Ends a process that does not stop: a thread in a dead file system, say, can't be ended."""
    names = [thread.name for thread in threading.enumerate() if not thread.daemon]
    text = "did not stop within drain_s=%g and %g s more, ended; threads=%s"
    # The log may be what hangs.
    line = threading.Thread(
        target=logger.error, args=(text, drain_s, STOP_MARGIN_S, names), daemon=True
    )
    line.start()
    line.join(1)
    os._exit(EXIT_NOT_STOPPED)
