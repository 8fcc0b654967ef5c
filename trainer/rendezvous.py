# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a job meet at the coordinator's port, before JAX takes it over. No JAX.

JAX waits for them without a word and ends the program in C++ when one does not come. Here each
process says its number to process 0, which lets all go when all have come.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator

from trainer.run_config import ConfigError

logger = logging.getLogger(__name__)

NOTICE_S = 10.0
_LOOK_S = 0.5
_HELLO_S = 5.0
_HELLO_BYTES = 1024
# Process 0 gives up first, so that the others learn from it who is missing.
_MARGIN_S = 5.0
_GO, _NO = "go", "no: "


def meet(coordinator: str, processes: int, process: int, *, timeout_s: float) -> None:
    """Waits until all processes of the job have come.

    Args:
        coordinator: HOST:PORT of process 0.
        processes: number of processes.
        process: number of this one.
        timeout_s: longest wait, in seconds.

    Raises:
        ConfigError: somebody did not come, the port is taken, or the numbers don't fit together.
    """
    host, _, port = coordinator.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # JAX's client would go through a proxy that is set for the web.
    for name in ("no_proxy", "no_grpc_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name, ""), host]))
    wait = _Wait(coordinator, timeout_s)
    if process == 0:
        _gather(wait, int(port), processes)
    else:
        _join(wait, (host, int(port)), {"process": process, "processes": processes})


class _Wait:
    """The bound of the wait, and a line every ten seconds of what is missing."""

    def __init__(self, coordinator: str, timeout_s: float) -> None:
        self._coordinator = coordinator
        self._timeout_s = timeout_s
        self._start = self._noticed = time.monotonic()

    def look(self, missing: str, remedy: str, margin_s: float = 0) -> None:
        """Goes on waiting.

        Raises:
            ConfigError: the wait is over.
        """
        now = time.monotonic()
        if now - self._start > self._timeout_s + margin_s:
            raise ConfigError(
                f"{missing} after {self._timeout_s:.0f} s (--coordinator {self._coordinator})."
                f" {remedy}"
            )
        if now - self._noticed > NOTICE_S:
            self._noticed = now
            logger.warning(
                "waiting for the job to come together: %s waited_s=%.0f timeout_s=%.0f",
                missing,
                now - self._start,
                self._timeout_s,
            )


def _gather(wait: _Wait, port: int, processes: int) -> None:
    """Process 0: waits for all others and lets them go."""
    came: dict[int, socket.socket] = {}
    with _listen(wait, port) as server, _told(came):
        while missing := sorted(set(range(1, processes)) - set(came)):
            wait.look(
                f"processes {missing} have not come",
                "Start them, or look at their logs: they must reach that address.",
            )
            server.settimeout(_LOOK_S)
            try:
                connection, _ = server.accept()
            except TimeoutError:
                connection = None
            for process in [p for p, one in came.items() if _closed(one)]:
                came.pop(process).close()
            if connection is not None:
                _welcome(connection, processes, came)


@contextlib.contextmanager
def _told(came: dict[int, socket.socket]) -> Iterator[None]:
    """Lets those that came go at the end of the block, or tells them why not."""
    answer = _GO
    try:
        yield
    except ConfigError as error:
        answer = f"{_NO}{error}"
        raise
    finally:
        for connection in came.values():
            with connection, contextlib.suppress(OSError):
                connection.sendall(f"{answer}\n".encode())


@contextlib.contextmanager
def _listen(wait: _Wait, port: int) -> Iterator[socket.socket]:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    while True:
        try:
            server = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            wait.look(
                f"port {port} can't be listened on: {os.strerror(error.errno or 0)}",
                "End the run that has it, or choose another port for all processes.",
            )
            time.sleep(_LOOK_S)
        else:
            break
    with server:
        yield server


def _welcome(connection: socket.socket, processes: int, came: dict[int, socket.socket]) -> None:
    """Takes in a process that says who it is; tells it when that can't be."""
    try:
        connection.settimeout(_HELLO_S)
        hello = json.loads(connection.recv(_HELLO_BYTES))
        process, said = int(hello["process"]), int(hello["processes"])
    except (OSError, ValueError, KeyError, TypeError):
        connection.close()  # a port scanner
        return
    if said != processes:
        answer = f"--num-processes must be equal, process 0 has {processes}, got {said}."
    elif not 0 < process < processes or process in came:
        answer = f"--process-id must be different for each process, got {process} twice."
    else:
        came[process] = connection
        return
    with contextlib.suppress(OSError):
        connection.sendall(f"{_NO}{answer}\n".encode())
    connection.close()


def _closed(connection: socket.socket) -> bool:
    """Whether the process at the other end is gone."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(_HELLO_S)


def _join(wait: _Wait, address: tuple[str, int], hello: dict[str, int]) -> None:
    """Another process: says its number and waits until all may go."""
    remedy = "Start process 0, or correct the address."
    while True:
        try:
            with socket.create_connection(address, timeout=_HELLO_S) as connection:
                connection.sendall(json.dumps(hello).encode())
                answer = _answer(
                    connection,
                    lambda: wait.look("process 0 waits for others", "See its log.", _MARGIN_S),
                )
        except socket.gaierror as error:
            found = f"the name {address[0]} does not resolve ({error.strerror})"
        except OSError as error:
            found = f"process 0 does not answer ({error.strerror or error})"
        else:
            if answer == _GO:
                return
            if answer.startswith(_NO):
                raise ConfigError(answer.removeprefix(_NO))
            found = "what listens there is no process 0 that waits for others"
        wait.look(found, remedy)
        time.sleep(_LOOK_S)


def _answer(connection: socket.socket, look: Callable[[], None]) -> str:
    """Waits for a line of process 0; "" when it closes the connection."""
    connection.settimeout(_LOOK_S)
    while True:
        try:
            return connection.recv(_HELLO_BYTES).decode(errors="replace").strip()
        except TimeoutError:
            look()
