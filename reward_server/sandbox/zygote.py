# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The zygote: a warm interpreter that forks a jailed process for each run.

It is started with an empty environment and never sees code, tests or expected values: those go
through pipes, straight between its client and the jailed processes. It leaves the tree of the
process that starts it, so that a kill of that tree does not take it before it has killed its
runs: when its socket closes it kills them all and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reward_server.sandbox import (
    folder,
    jail,
    landlock,
    processes,
    program,
    referee,
    seccomp,
    solution,
)
from reward_server.sandbox.messages import Channel

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_TICK_MS = 100
_MAX_MESSAGE = 4096
_COMMANDS, _RESULTS, _STDLIB, _FREE = 3, 4, 5, 6
_AWAY = 64
_MAX_FD = 256
_ROLES: dict[str, Callable[[Channel], None]] = {
    "program": program.run,
    "solution": solution.run,
    "referee": referee.run,
}
# What programs import most: a fork has them for nothing.
_WARM = (
    *("abc", "array", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses"),
    *("datetime", "decimal", "enum", "fractions", "functools", "heapq", "io", "itertools", "json"),
    *("math", "operator", "queue", "random", "re", "statistics", "string", "time", "typing"),
)


def main(arguments: dict[str, Any]) -> None:
    """Runs the zygote; see `reward_server.sandbox.launch` for the arguments."""
    # Low numbers are for the runs.
    control = socket.socket(fileno=fcntl.fcntl(arguments["fd"], fcntl.F_DUPFD_CLOEXEC, _AWAY))
    os.close(arguments["fd"])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Its memory is closed to its runs, even where they are the same user.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    try:
        zygote = _Zygote(control, arguments["sandbox"], arguments["parent"])
    except Exception as error:  # noqa: BLE001 - the client raises it
        control.send(json.dumps({"problem": str(error)}).encode())
        return
    try:
        zygote.serve()
    except Exception as error:  # noqa: BLE001 - told to the client, if there is one
        with contextlib.suppress(OSError):
            control.send(json.dumps({"problem": repr(error)}).encode())
    finally:
        zygote.close()


class _Zygote:
    def __init__(self, control: socket.socket, sandbox: str, parent: str) -> None:
        self._control = control
        self._folder = Path(tempfile.mkdtemp(prefix="shardward-run-", dir=parent))
        self._runs: dict[int, tuple[int, int]] = {}
        self._memory_bytes = 0
        self._looked = 0.0
        self._stdlib: int | None = None
        stdlib = Path(os.__file__).parent
        uids, ruleset, filter_program = None, None, None
        try:
            if sandbox != "none":
                uids = jail.find_uids()
                if uids is not None and not _is_open(stdlib):
                    self._stdlib = _relocate(stdlib)
                # Inside bubblewrap it is a second wall, for kernels that have it.
                if sandbox == "landlock" or landlock.version():
                    opened = landlock.create_ruleset(self._folder, stdlib)
                    ruleset = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _AWAY)
                    os.close(opened)
                alone = uids is not None or (ruleset is not None and landlock.scopes_signals())
                filter_program = seccomp.program(deny_signals=not alone)
            self._jail = jail.Jail(ruleset=ruleset, filter_program=filter_program, uids=uids)
            for name in _WARM:
                importlib.import_module(name)
            gc.freeze()
            if sandbox != "none":
                self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            problem: str | None = "unknown"
            try:
                self._enter(2**30, 10)
                problem = jail.check()
            except BaseException as error:  # noqa: BLE001 - told to the parent
                problem = str(error)
            os.write(writer, (problem or "").encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            problem = pipe.read()
        try:
            # Killing it and tidying up after it is allowed, too.
            os.kill(pid, signal.SIGKILL)
            folder.empty(self._folder)
        finally:
            os.waitpid(pid, 0)
        if problem:
            raise OSError(problem)

    def _enter(self, memory_bytes: int, cpu_s: int, *, owner: bool = True) -> None:
        uid = self._jail.pick_uid()
        if uid is not None and owner:
            os.chown(self._folder, uid, uid)
        jail.enter(self._jail, uid=uid, memory_bytes=memory_bytes, cpu_s=cpu_s, folder=self._folder)

    def serve(self) -> None:
        """Does what the client asks until it is gone."""
        self._send({"ready": True})
        while True:
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            for fd in self._runs:
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(_TICK_MS if self._runs else None)}
            # Those that ended first: a new run may get one of their descriptors.
            for fd in ready & self._runs.keys():
                self._finish(fd)
            if self._control.fileno() in ready and not self._obey():
                return
            self._look()

    def close(self) -> None:
        """Leaves no process and no file."""
        processes.kill_all()
        folder.remove(self._folder)

    def _obey(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 4)
        if not data:
            return False
        message = json.loads(data)
        if message["do"] == "end":
            self._end()
            return True
        try:
            self._fork(message, fds)
        except OSError as error:
            self._send({"problem": f"fork: {error}"})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, message: dict[str, Any], fds: list[int]) -> None:
        self._memory_bytes = message["memory_bytes"]
        self._looked = time.monotonic()
        pid = os.fork()
        if pid:
            self._runs[os.pidfd_open(pid)] = (message["run"], pid)
            return
        try:
            self._become(message, fds)
        finally:
            os._exit(1)

    def _become(self, message: dict[str, Any], fds: list[int]) -> None:
        """Turns this fork into a run; never returns to the zygote's loop."""
        os.setsid()
        away = [fcntl.fcntl(fd, fcntl.F_DUPFD, _AWAY) for fd in fds]
        for fd, target in zip(away, (0, 1, _COMMANDS, _RESULTS), strict=True):
            os.dup2(fd, target)
        # What goes to stderr is lost, and what functions print is no answer.
        null = os.open(os.devnull, os.O_RDWR)
        for target in (2,) if message["role"] == "program" else (0, 1, 2):
            os.dup2(null, target)
        channel = Channel(_COMMANDS, _RESULTS)
        try:
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
            # Descriptors of the zygote that the jail still needs are far up.
            owner = message["role"] != "referee"
            self._enter(message["memory_bytes"], message["cpu_s"], owner=owner)
        except OSError as error:
            channel.send({"problem": str(error)})
            return
        os.closerange(_FREE, _MAX_FD)
        if self._stdlib is None:
            with contextlib.suppress(OSError):
                os.close(_STDLIB)
        os.environ.clear()
        os.environ.update(
            {"HOME": str(self._folder), "TMPDIR": str(self._folder), "LANG": "C.UTF-8"}
        )
        channel.send({"ready": True})
        _ROLES[message["role"]](channel)

    def _finish(self, fd: int) -> None:
        run, pid = self._runs.pop(fd)
        os.close(fd)
        _, status = os.waitpid(pid, 0)
        self._send({"exit": run, "code": os.waitstatus_to_exitcode(status)})

    def _look(self) -> None:
        """Kills runs that take more than the limits of a process can express."""
        now = time.monotonic()
        if not self._runs or now - self._looked < _TICK_MS / 1000:
            return
        self._looked = now
        full = folder.is_too_full(self._folder)
        if full or processes.resident_bytes() > self._memory_bytes:
            self._kill()

    def _kill(self) -> None:
        while self._runs:
            fd, (run, pid) = self._runs.popitem()
            self._send({"exit": run, "code": processes.kill(pid, fd)})
            os.close(fd)
        processes.kill_all()

    def _end(self) -> None:
        self._kill()
        folder.empty(self._folder)
        self._send({"ended": True})

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the client is gone; the next read says so
            self._control.send(json.dumps(message).encode())


def _is_open(path: Path) -> bool:
    """Says whether any user can reach a folder."""
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents))


def _relocate(stdlib: Path) -> int:
    """Makes the standard library importable for users who cannot reach its folder."""
    opened = os.open(stdlib, os.O_PATH | os.O_DIRECTORY)
    os.dup2(opened, _STDLIB)
    if opened != _STDLIB:
        os.close(opened)
    old, new = str(stdlib), f"/proc/self/fd/{_STDLIB}"
    sys.path[:] = [p.replace(old, new, 1) for p in sys.path if p.startswith(old)]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        if isinstance(path := getattr(module, "__path__", None), list):
            path[:] = [p.replace(old, new, 1) for p in path]
    return _STDLIB
