# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Child processes of a launcher: prefixed logs, the first failure, an end that leaves none."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

_POLL_S = 0.1
NOTICE_S = 10.0
# Written for every connection between JAX processes by the library below, which has no switch.
_NOISE = "[Gloo] Rank"
# Cyan, green, yellow, magenta, blue, and the same brighter; red looks like an error.
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)


class Failed(Exception):  # noqa: N818 - named for what happened to a process
    """A process failed or a wait ran out.

    Attributes:
        code: exit code for the launcher.
    """

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Stopped(BaseException):
    """A signal asked the launcher to end.

    Attributes:
        code: exit code for the launcher, 128 + signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


@dataclasses.dataclass(slots=True, kw_only=True)
class Child:
    """A process that was started.

    Attributes:
        name: prefix of its log lines.
        process: the process; it leads a process group of its own.
        grace_s: seconds between SIGTERM and SIGKILL when it is stopped.
        serves: whether others need it to the end, so that it is stopped after them.
        log: thread that copies its output.
    """

    name: str
    process: subprocess.Popen[bytes]
    grace_s: float
    serves: bool = False
    log: threading.Thread | None = None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and to all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Processes:
    """Children of a launcher; when the context ends, none of them is left.

    Signals to the launcher raise `Stopped` in it; the children have process groups of their own,
    so Ctrl-C reaches only the launcher. A second signal kills.
    """

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._stopping = False
        self._hurry = False
        self._handlers: dict[int, object] = {}
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._colour_of: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Takes over the signals."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops the children, those that serve others last, and gives the signals back."""
        self._stopping = True
        self._stop([child for child in self._children if not child.serves])
        self._stop([child for child in self._children if child.serves])
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _stop(self, children: list[Child]) -> None:
        """Stops children, all at once, and says every 10 s which of them have not ended."""
        for child in children:
            if child.process.poll() is None:
                child.signal(signal.SIGTERM)
        start, told = time.monotonic(), -math.inf
        while running := [child for child in children if child.process.poll() is None]:
            now = time.monotonic()
            late = [child for child in running if now - start > child.grace_s]
            if self._hurry or late:
                break
            # Servers end within a second, of which nobody wants to read.
            if now - told >= NOTICE_S and (now > start + NOTICE_S or not running[0].serves):
                told = now
                names = ", ".join(child.name for child in running)
                left = max(child.grace_s for child in running) - (now - start)
                print(f"stopping: {names} (at most {left:.0f} s; Ctrl-C again kills)", flush=True)
            time.sleep(_POLL_S / 4)
        for child in children:
            self._end(child)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            self._hurry = True
            return
        self._stopping = True
        raise Stopped(number)

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: dict[str, str] | None = None,
        grace_s: float = 15.0,
        serves: bool = False,
        terminal: bool = False,
    ) -> Child:
        """Starts a program.

        Args:
            name: prefix of its log lines.
            command: the program and its arguments.
            environment: variables to add to this process's.
            grace_s: seconds between SIGTERM and SIGKILL when it is stopped.
            serves: stop it after the others have ended: they need it to the end.
            terminal: let it write to the terminal, without a prefix.

        Raises:
            Failed: there is no such program.
        """
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if terminal else subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"{name} can't be started: {error}.", code=127) from error
        child = Child(name=name, process=process, grace_s=grace_s, serves=serves)
        self._children.append(child)
        prefix = "" if terminal else self._prefix(name)
        child.log = threading.Thread(target=_copy, args=(child, prefix), daemon=True)
        child.log.start()
        return child

    def _prefix(self, name: str) -> str:
        if not self._colours:
            return f"[{name}] "
        # By what comes first in the name: all of a node have one colour.
        first = name.partition(" ")[0]
        number = self._colour_of.setdefault(first, len(self._colour_of))
        return f"\x1b[{_COLOURS[number % len(_COLOURS)]}m[{name}]\x1b[0m "

    def wait(
        self,
        done: Callable[[], Sequence[str]],
        *,
        timeout_s: float | None,
        what: str,
        notice: bool = True,
    ) -> None:
        """Waits until nothing is outstanding.

        Args:
            done: names what is outstanding; empty ends the wait.
            timeout_s: longest wait, or None.
            what: what is waited for, for messages.
            notice: whether to say every 10 s what is outstanding.

        Raises:
            Failed: a child failed, or the time ran out.
        """
        start = told = time.monotonic()
        while outstanding := done():
            self.check()
            now = time.monotonic()
            if timeout_s is not None and now - start > timeout_s:
                raise Failed(f"{what} took more than {timeout_s:.0f} s: {', '.join(outstanding)}.")
            if notice and now - told >= NOTICE_S:
                told = now
                print(f"waiting for {what}: {', '.join(outstanding)} ({now - start:.0f} s)")
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Looks for a child that failed.

        Raises:
            Failed: with the exit code of the first child that has one.
        """
        for child in self._children:
            code = child.process.poll()
            if code:
                raise Failed(
                    f"{child.name} ended with exit code {code}.",
                    code=code if code > 0 else 128 - code,
                )

    def _end(self, child: Child) -> None:
        # What it started may outlive it; the group holds all of that.
        child.signal(signal.SIGKILL)
        child.process.wait()
        if child.log is not None:
            child.log.join(1.0)


def _copy(child: Child, prefix: str) -> None:
    assert child.process.stdout is not None
    for line in child.process.stdout:
        text = line.decode(errors="replace").rstrip()
        if not text.startswith(_NOISE):
            # One write: threads share the terminal.
            sys.stdout.write(f"{prefix}{text}\n")
            sys.stdout.flush()
