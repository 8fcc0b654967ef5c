# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A sandbox from the outside: programs with stdin, and calls of functions, each with a limit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import secrets
import select
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from reward_server.grading_errors import BadParameter, NotTheCompletionError
from reward_server.sandbox import values
from reward_server.sandbox.launch import launch
from reward_server.sandbox.messages import LENGTH, MAX_BYTES

KINDS = ("auto", "landlock", "bwrap", "none")
_MEMORY_BYTES = 2**30
_READ_BYTES = 2**16
_MAX_MESSAGE = 4096
# A jailed fork is there after some ms, and all of it is gone as fast; a busy machine takes longer.
_OWN_S = 60.0
_CPU_SLACK_S = 2.0

_logger = logging.getLogger(__name__)


class SandboxError(NotTheCompletionError, RuntimeError):
    """The sandbox failed, not the code in it; says nothing about the code."""


class RunEndedError(Exception):
    """A run ended before it answered; the message says how."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """What a program did.

    Attributes:
        output: what it wrote to stdout.
        code: its exit code, negative for a signal; None if it was killed at a limit.
    """

    output: bytes
    code: int | None


class Run:
    """One jailed process, as long as its sandbox goes on."""

    def __init__(self, number: int, results: int, commands: int, output: int) -> None:
        self.number = number
        self.results = results
        self.commands = commands
        self.output = output
        self.code: int | None = None
        self.incoming = bytearray()

    def read(self) -> bool:
        """Reads what there is; says whether more may come."""
        try:
            while data := os.read(self.results, _READ_BYTES):
                self.incoming += data
                if len(self.incoming) > MAX_BYTES + LENGTH.size:
                    raise RunEndedError(f"it sent more than {MAX_BYTES} bytes")
        except BlockingIOError:
            return True
        return False

    def take(self, max_bytes: int) -> Any:
        """Returns a message that is complete, or None.

        Raises:
            RunEndedError: it is longer than `max_bytes`, or none.
        """
        if len(self.incoming) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack_from(self.incoming)
        if size > max_bytes:
            raise RunEndedError(f"it sent more than {max_bytes} bytes")
        if len(self.incoming) < LENGTH.size + size:
            return None
        data = self.incoming[LENGTH.size : LENGTH.size + size]
        del self.incoming[: LENGTH.size + size]
        try:
            return values.loads(data)
        except ValueError as error:
            raise RunEndedError(f"it sent no message: {error}") from None

    def close(self) -> None:
        """Closes its pipes."""
        for fd in (self.results, self.commands, self.output):
            os.close(fd)


class Sandbox:
    r"""Runs code in jailed forks of a zygote, which starts with it.

    Args:
        kind: "landlock", "bwrap", "none", or "auto" for the first of the first two that works.
        memory_bytes: address space of a process, and memory of all processes of a run together.

    Raises:
        SandboxError: no sandbox works here; names what is missing.

    Example:
        `Sandbox().program(["print(input())"], stdin=b"a", timeout_s=5)` has the output `b"a\n"`.
    """

    def __init__(self, kind: str = "auto", *, memory_bytes: int = _MEMORY_BYTES) -> None:
        if kind not in KINDS:
            raise BadParameter(f"`sandbox` must be one of {', '.join(KINDS)}, got {kind!r}.")
        if kind == "none":
            _logger.warning("sandbox=none: code of the model runs with the rights of this process")
        self._memory_bytes = memory_bytes
        self._runs: dict[int, Run] = {}
        self._numbers = 0
        problems = []
        for each in ("landlock", "bwrap") if kind == "auto" else (kind,):
            try:
                self._control = launch(each)
            except OSError as error:
                problems.append(f"{each}: {error}")
            else:
                self.kind = each
                return
        raise SandboxError(
            f"no sandbox works here: {'; '.join(problems)}. Use Linux 5.13 or later with Landlock,"
            ' install bwrap and allow user namespaces, or set sandbox = "none" to do without.'
        )

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Ends the zygote, which kills what it has forked."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()
        self._control.close()

    def program(self, sources: Sequence[str], *, stdin: bytes, timeout_s: float) -> ProgramResult:
        """Runs a whole program.

        Args:
            sources: texts, of which the first that compiles is run.
            stdin: its input.
            timeout_s: seconds that it may take.

        Raises:
            SandboxError: it could not be run.
        """
        run = self.open("program", stdin=stdin, cpu_s=timeout_s)
        try:
            self._send(run, {"sources": sources}, time.monotonic() + _OWN_S)
            return self._collect(run, time.monotonic() + timeout_s)
        except RunEndedError as error:
            raise SandboxError(f"a program was not started: {error}") from None
        finally:
            self.end()

    def open(self, role: str, *, cpu_s: float, stdin: bytes = b"") -> Run:
        """Forks a jailed process and waits until it is locked up.

        Args:
            role: "program", "solution" or "referee".
            cpu_s: CPU seconds after which the kernel kills it.
            stdin: input of a program; the others have none.

        Raises:
            SandboxError: it could not be made.
        """
        self._numbers += 1
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as failed:
            commands, our_commands = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, commands)
            failed.callback(os.close, our_commands)
            our_results, results = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, results)
            failed.callback(os.close, our_results)
            source = os.memfd_create("stdin", os.MFD_CLOEXEC)
            theirs.callback(os.close, source)
            with os.fdopen(os.dup(source), "wb") as file:
                file.write(stdin)
            os.lseek(source, 0, os.SEEK_SET)
            output, sink = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, sink)
            failed.callback(os.close, output)
            for fd in (our_commands, our_results, output):
                os.set_blocking(fd, False)
            run = Run(self._numbers, our_results, our_commands, output)
            message = {
                "do": "run",
                "run": run.number,
                "role": role,
                "memory_bytes": self._memory_bytes,
                "cpu_s": math.ceil(cpu_s + _CPU_SLACK_S),
            }
            self._tell(message, [source, sink, commands, results])
            self._runs[run.number] = run
            failed.pop_all()
        try:
            reply = self._receive(run, time.monotonic() + _OWN_S)
        except RunEndedError as error:
            raise SandboxError(f"a jailed process was not made: {error}") from None
        if "problem" in reply:
            raise SandboxError(f"a jailed process was not made: {reply['problem']}")
        return run

    def ask(
        self,
        run: Run,
        request: dict[str, Any],
        deadline: float,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> dict[str, Any]:
        """Sends a request to a solution and returns the answer to this one.

        Raises:
            RunEndedError: there is none by the deadline, or none of at most `max_bytes`.
            SandboxError: the zygote is gone.
        """
        # Nobody can answer a request before it is made.
        number = secrets.token_hex(8)
        reply = self.exchange(run, {**request, "id": number}, deadline, max_bytes=max_bytes)
        if not isinstance(reply, dict) or reply.get("id") != number:
            raise RunEndedError("it sent something else than the answer")
        return reply

    def exchange(
        self, run: Run, message: Any, deadline: float, *, max_bytes: int = MAX_BYTES
    ) -> Any:
        """Sends a message and returns the next one from the run."""
        self._send(run, message, deadline)
        return self._receive(run, deadline, max_bytes)

    def end(self) -> None:
        """Kills all runs with all their processes and returns when nothing of them is left.

        Raises:
            SandboxError: the zygote is gone.
        """
        if not self._runs:
            return
        self._tell({"do": "end"})
        while not self._hear():
            pass
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def _send(self, run: Run, message: Any, deadline: float) -> None:
        data = values.dumps(message)
        rest = memoryview(LENGTH.pack(len(data)) + data)
        while rest:
            try:
                rest = rest[os.write(run.commands, rest) :]
            except BlockingIOError:
                self._wait(run.commands, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise RunEndedError("it ended") from None

    def _receive(self, run: Run, deadline: float, max_bytes: int = MAX_BYTES) -> Any:
        while True:
            more = run.read()
            if (message := run.take(max_bytes)) is not None:
                return message
            if run.code is not None or not more:
                raise RunEndedError("it ended")
            self._wait(run.results, select.POLLIN, deadline)

    def _collect(self, run: Run, deadline: float) -> ProgramResult:
        output = bytearray()
        source: int | None = run.output
        while True:
            # Asked before reading, so that nothing written by then is missed.
            ended = run.code is not None
            try:
                while source is not None and len(output) <= MAX_BYTES:
                    if data := os.read(source, _READ_BYTES):
                        output += data
                    else:
                        source = None
            except BlockingIOError:
                pass
            if len(output) > MAX_BYTES:
                return ProgramResult(output=b"", code=None)
            if ended:
                return ProgramResult(output=bytes(output), code=run.code)
            try:
                self._wait(source, select.POLLIN, deadline)
            except RunEndedError:
                return ProgramResult(output=bytes(output), code=None)

    def _wait(self, fd: int | None, events: int, deadline: float) -> None:
        """Waits for a pipe, or for news of a run."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise RunEndedError("it took too long")
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if fd is not None:
            poll.register(fd, events)
        ready = [number for number, _ in poll.poll(math.ceil(remaining * 1000))]
        if self._control.fileno() in ready:
            self._hear()

    def _hear(self) -> bool:
        """Takes one message of the zygote; says whether it ended all runs."""
        try:
            data = self._control.recv(_MAX_MESSAGE)
        except OSError as error:
            raise SandboxError(f"the zygote is gone: {error}") from None
        if not data:
            raise SandboxError("the zygote is gone")
        message = json.loads(data)
        if "problem" in message:
            raise SandboxError(f"the zygote failed: {message['problem']}")
        if "exit" in message:
            self._runs[message["exit"]].code = message["code"]
        return "ended" in message

    def _tell(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the zygote is gone: {error}") from None
