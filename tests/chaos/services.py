# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that are started again when they die, and what is left of them at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

MARK = "CHAOS_RUN"


class Service:
    """A process of the job.

    Attributes:
        arguments: after `python -m`, from its next start on.

    Args:
        name: for the table.
        arguments: after `python -m`.
        folder: of its log.
        environment: variables to add.
        restarts: whether it is started again when it has been killed.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        *,
        folder: Path,
        environment: dict[str, str],
        restarts: bool = True,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self._log = folder / f"{name.replace(' ', '-')}.log"
        self._environment = environment
        self._restarts = restarts
        self._stopping = False
        self._started = time.monotonic()
        self.first_rss_bytes = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started = time.monotonic()
        self.first_rss_bytes = 0
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    def watch(self, *, settled_s: float = 10.0) -> None:
        """Starts it again if it is dead, and notes its memory once it has settled."""
        if self.process.poll() is not None and self._restarts and not self._stopping:
            self.process = self._start()
        elif not self.first_rss_bytes and time.monotonic() - self._started > settled_s:
            self.first_rss_bytes = self.rss_bytes()

    def rss_bytes(self) -> int:
        """Resident memory now."""
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal to the process itself; says whether it was alive."""
        if self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def kill_children(self) -> bool:
        """Kills all that it has started, not itself; says whether there were any."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return False
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        return bool(children)

    def stop(self) -> None:
        """Asks it to end; `join` waits."""
        self._stopping = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def join(self, timeout_s: float) -> None:
        """Waits for its end and kills it in the end."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Watch:
    """Watches services in a thread while the context is open."""

    def __init__(self, services: list[Service]) -> None:
        self._services = services
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        """Starts to watch."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stops all services."""
        self._done.set()
        self._thread.join()
        for service in self._services:
            service.stop()
        for service in self._services:
            service.join(30)

    def _run(self) -> None:
        while not self._done.wait(0.2):
            for service in self._services:
                service.watch()


def left_behind(run: str) -> list[int]:
    """Processes that carry the mark of a run and are still there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == run:
                found.append(process.pid)
    return [pid for pid in found if pid != os.getpid()]
