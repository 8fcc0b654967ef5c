# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The parent of one child: when the child ends, everything that it started ends too.

Started by `reward_server.child_process` as `python -m reward_server.supervisor`. It forks the
child before anything large is imported, and adopts what the child's descendants orphan, in
whatever session and with whatever environment. It ends as the child ended. Error output of all of
them goes through it, so that a reward function can't flood the server's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from typing import NoReturn

from reward_server import processes

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_S = 3.0
_STDOUT = 1
_STDERR = 2
_STDERR_BYTES = 64 * 2**10
_STDERR_WINDOW_S = 10.0
_WRITE_S = 0.05
_PIPE_BYTES = 4096  # a pipe that can be written takes so many at once


class _ErrorOutput:
    """Hands on what comes from a pipe, up to a limit in a span of time."""

    def __init__(self, pipe: int, pid: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self._pid = pid
        self._left = _STDERR_BYTES
        self._window = time.monotonic()
        self._told = False

    def copy(self) -> bool:
        """Takes what is there; returns whether more can come."""
        try:
            data = os.read(self.pipe, _PIPE_BYTES)
        except BlockingIOError:
            return True
        now = time.monotonic()
        if now - self._window > _STDERR_WINDOW_S:
            self._window, self._left = now, _STDERR_BYTES
        if len(data) <= self._left:
            self._left -= len(data)
            _write(data)
        elif not self._told:
            self._told = True
            self._left = 0
            text = b"reward child %d: more than %d bytes of error output in %d s, rest dropped\n"
            _write(text % (self._pid, _STDERR_BYTES, _STDERR_WINDOW_S))
        return bool(data)


def _write(data: bytes) -> None:
    # Whoever should read the server's error output may have stopped; that must not stop us.
    if data and select.select([], [_STDERR], [], _WRITE_S)[1]:
        try:
            os.write(_STDERR, data)
        except OSError:
            return


def _reap(child: int) -> int | None:
    """Takes the status of ended processes; returns the child's if it is among them."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        if pid == child:
            ended = status


def _watch(child: int, output: _ErrorOutput, wake: int, stop: list[int]) -> int | None:
    """Copies error output until the child ends or a signal says stop."""
    sources = [output.pipe, wake]
    while not stop:
        ready = select.select(sources, [], [])[0]
        if wake in ready:
            os.read(wake, _PIPE_BYTES)
            if (status := _reap(child)) is not None:
                return status
        if output.pipe in ready and not output.copy():
            sources.remove(output.pipe)
    return None


def _kill_all(child: int) -> int | None:
    """Kills the child and its descendants until none is left, and returns the child's status."""
    ended = None
    deadline = time.monotonic() + _KILL_S
    while (pids := processes.descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        status = _reap(child)
        ended = status if status is not None else ended
        time.sleep(0.001)
    return ended


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)  # noqa: PTH106 - pathlib is slow to import
    except OSError:
        import shutil  # noqa: PLC0415 - most functions leave no files

        shutil.rmtree(folder, ignore_errors=True)


def _end(status: int | None) -> NoReturn:
    """Ends as the child ended."""
    if status is None or os.WIFSIGNALED(status):
        number = signal.SIGKILL if status is None else os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status or 0))


def _fork(sock_fd: int) -> int:
    """Forks; tells the server why if that can't be done."""
    try:
        return os.fork()
    except OSError as error:
        from reward_server import frames  # noqa: PLC0415 - slow to import

        text = f"a child process cannot be started: {error}."
        for part in frames.encode({"type": "failed", "message": text}):
            os.write(sock_fd, part)
        raise SystemExit(1) from None


def main() -> None:
    """Runs a child; the arguments are two descriptors for it, the parent's id and its folder."""
    sock_fd, memory_fd, parent = map(int, sys.argv[1:4])
    folder = sys.argv[4]
    stop: list[int] = []
    wake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Told when the server dies, even by SIGKILL.
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getppid() != parent:
        _remove(folder)
        return
    pipe, theirs = os.pipe()
    me = os.getpid()
    child = _fork(sock_fd)
    if not child:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.dup2(theirs, _STDERR)
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        for fd in (pipe, theirs, wake, wakes):
            os.close(fd)
        from reward_server import child as rewards  # noqa: PLC0415 - only here

        rewards.run(sock_fd, memory_fd, parent=me)
    for fd in (theirs, sock_fd, memory_fd):
        os.close(fd)
    output = _ErrorOutput(pipe, child)
    status = _watch(child, output, wake, stop)
    ended = _kill_all(child)
    while select.select([pipe], [], [], 0)[0] and output.copy():
        pass
    _remove(folder)
    _end(status if status is not None else ended)


if __name__ == "__main__":
    main()
