# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Start, serve, drain, stop: the life of a server or worker process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import ipaddress
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from reward_server.batch import Scorer, StartError
from reward_server.channel import SERVER_OPTIONS
from reward_server.decode import Tokenizer
from reward_server.handler import Handler

LAME_DUCK_S = 0.5
_SOCKET_PATH_BYTES = 107
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a process serves.

    Attributes:
        name: full gRPC name.
        add: adds the servicer of a handler to a server.
    """

    name: str
    add: Callable[[Handler, grpc.aio.Server], None]


@contextlib.contextmanager
def _socket_lock(listen: str) -> Iterator[None]:
    """Holds the lock of a unix socket: a live one is never taken over, a stale one is replaced."""
    if not listen.startswith("unix:"):
        yield
        return
    path = Path(listen.removeprefix("unix:").removeprefix("//"))
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise StartError(f"`--listen` must have at most {_SOCKET_PATH_BYTES} bytes, got {path}.")
    try:
        descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"`--listen` must be in a folder that can be written: {error}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartError(
                f"`--listen` must be free: another server holds {path}."
                " Stop it or take another path."
            ) from None
        yield
    finally:
        os.close(descriptor)


def check_listen(listen: str, *, insecure_bind: bool) -> None:
    """Checks where a process may listen.

    Raises:
        StartError: the address has no port, or others than this machine could connect.
    """
    if listen.startswith("unix:"):
        return
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(f"`--listen` must be unix:PATH or HOST:PORT, got {listen!r}.")
    if insecure_bind or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise StartError(
            f"`--listen` must be a unix socket or loopback, got {host!r}: anybody could connect."
            " Say --insecure-bind to listen there all the same."
        )


def _bind(server: grpc.aio.Server, listen: str) -> str:
    mask = os.umask(0o177)
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise StartError(f"`--listen` must be free, got {listen}: {error}.") from error
    finally:
        os.umask(mask)
    return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"


async def run(
    *,
    listen: str,
    insecure_bind: bool,
    drain_s: float,
    max_queue_bytes: int,
    tokenizer: Tokenizer,
    scorer: Scorer,
    service: Service,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains.

    Raises:
        StartError: the process can't start; the message says what to change.
    """
    check_listen(listen, insecure_bind=insecure_bind)
    with _socket_lock(listen):
        server = grpc.aio.server(options=SERVER_OPTIONS)
        health = grpc_health.aio.HealthServicer()
        handler = Handler(scorer, tokenizer, max_queue_bytes=max_queue_bytes)
        service.add(handler, server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        names = (service.name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
        stop = _signals()
        starting = asyncio.ensure_future(scorer.start())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return
            starting.result()
            address = _bind(server, listen)
            await server.start()
            for name in ("", service.name):
                await health.set(name, health_pb2.HealthCheckResponse.SERVING)
            fns = ",".join(fn.name for fn in scorer.reward_fns)
            logger.info("ready listen=%s slots=%d reward_fns=%s", address, scorer.slots, fns)
            await stopping
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


def _signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; the second signal ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop
