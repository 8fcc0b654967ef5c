# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The parent's handle of one child process: start it, send frames, see it die, kill all of it.

Which rows a child gets is decided in `reward_server.pool`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from reward_server import frames, processes
from reward_server.shared_memory import Shared, Word
from reward_server.trace import SIGNAL, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reward_server.config import RewardsConfig

_READ_BYTES = 2**16
# A usual chunk fits, so that sending it needs one wake-up.
_SEND_BYTES = 2**20
_SEND_PARTS = 64  # the system takes 1024
# The supervisor needs milliseconds, unless somebody has stopped it.
_KILL_S = 5.0
# For the child to write down where it is.
_TRACE_S = 0.5
_ENVIRONMENT = {
    # One process per slot: more threads in each only fight over the cores.
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    # A reward function that imports JAX must not take the accelerator.
    "JAX_PLATFORMS": "cpu",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What every child of a pool is started with.

    Attributes:
        rewards: functions to load.
        tokenizer_path: tokenizer to load, or None for rows of text.
        max_rows: most rows in one chunk.
        max_async_rows: rows of async functions run at the same time.
        max_data_bytes: memory that a process may ask for.
        probes: which functions score their probe row: "all", "written", those for which somebody
            wrote one, or "none".
        show_output: whether what functions print is shown, where their errors are.
    """

    rewards: RewardsConfig
    tokenizer_path: str | None
    max_rows: int
    max_async_rows: int
    max_data_bytes: int
    probes: str = "all"
    show_output: bool = False


class ChildProcess:
    """One child process, started at once; both callbacks run in the event loop.

    Args:
        spec: what to start it with.
        on_frame: called with every frame that the child sends.
        on_exit: called once, when the child is dead, reaped and all its frames are handed out.

    Attributes:
        exited: set then.
        shared: memory that both see.
        rows: rows that it has worked on.
        given_up: what it did for so long that its start was ended, or "".
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        on_frame: Callable[[ChildProcess, dict[str, Any]], None],
        on_exit: Callable[[ChildProcess], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._incoming = bytearray()
        self._outgoing: collections.deque[memoryview] = collections.deque()
        self.exited = asyncio.Event()
        self.rows = 0
        self.given_up = ""
        self._killed: asyncio.TimerHandle | None = None
        with contextlib.ExitStack() as undo:
            self._open(spec, undo)
            undo.pop_all()
        self._loop.add_reader(self._socket, self._read)
        self._loop.add_reader(self._output, self._ended)
        self.send(
            {
                "tokenizer": spec.tokenizer_path,
                "rewards": [dataclasses.asdict(f) for f in spec.rewards.functions],
                "route_column": spec.rewards.route_column,
                "max_rows": spec.max_rows,
                "max_async_rows": spec.max_async_rows,
                "max_data_bytes": spec.max_data_bytes,
                "probes": spec.probes,
                "show_output": spec.show_output,
            }
        )

    def _open(self, spec: ChildSpec, undo: contextlib.ExitStack) -> None:
        """Makes what the child needs, and starts it."""
        functions = len(spec.rewards.functions)
        self._folder = tempfile.mkdtemp(prefix="reward-child-")
        # Still empty then. `rmtree` would need a descriptor, of which there may be none.
        undo.callback(os.rmdir, self._folder)
        self._socket, theirs = socket.socketpair()
        undo.callback(self._socket.close)
        with theirs:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            memory = os.memfd_create("rewards", os.MFD_CLOEXEC)
            try:
                os.ftruncate(memory, Shared.size(rows=spec.max_rows, functions=functions))
                self.shared = Shared(memory, rows=spec.max_rows, functions=functions)
                self.shared.header[Word.FUNCTION] = -1
                arguments = [str(theirs.fileno()), str(memory), str(os.getpid()), self._folder]
                self._process = subprocess.Popen(  # noqa: S603 - our own module, fixed arguments
                    [sys.executable, "-m", "reward_server.supervisor", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    pass_fds=[theirs.fileno(), memory],
                    start_new_session=True,
                    env={**os.environ, **_ENVIRONMENT, "TMPDIR": self._folder},
                )
            finally:
                os.close(memory)
        assert self._process.stdout is not None
        self._output = self._process.stdout

    @property
    def pid(self) -> int:
        """Process id of the child's supervisor."""
        return self._process.pid

    @property
    def exit_text(self) -> str:
        """How the process ended, once it has, and in which line of the user's file."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was killed by {_signal_name(-code)}{self.line}"
        return f"exited with code {code}{self.line}"

    @property
    def line(self) -> str:
        """Where the child was when it crashed or was killed, or ""; see `trace.line_of`."""
        return line_of(self.shared.trace)

    def rss_bytes(self, limit: int) -> int:
        """Memory of the child and its descendants, 0 if they are gone; exact only above limit."""
        return processes.memory_bytes(processes.descendants(self.pid), limit=limit)

    def send(self, header: dict[str, Any], binary: Sequence[memoryview] = ()) -> None:
        """Sends a frame; what the socket does not take now follows when it can."""
        waiting = bool(self._outgoing)
        self._outgoing.extend(frames.encode(header, binary))
        if not waiting:
            self._write()

    def kill(self, *, trace: bool = False) -> None:
        """Kills the child and its descendants; `on_exit` follows.

        Args:
            trace: let the child write down first where it is, see `line`.
        """
        if self._killed is not None or self._process.returncode is not None:
            return
        if trace and (child := processes.descendants(self.pid)[:1]):
            self._killed = self._loop.call_later(_TRACE_S, self._kill)
            _send_signal(child[0], SIGNAL)
        else:
            self._kill()

    def _kill(self) -> None:
        self._killed = self._loop.call_later(_KILL_S, self._kill_supervisor)
        _send_signal(self.pid, signal.SIGTERM)

    def _kill_supervisor(self) -> None:
        for pid in (*processes.descendants(self.pid), self.pid):
            _send_signal(pid, signal.SIGKILL)

    def _ended(self) -> None:
        """Takes the status of the supervisor, whose output has ended."""
        self._loop.remove_reader(self._output)
        self._output.close()
        self._process.wait()
        if self._killed is not None:
            self._killed.cancel()
        if os.path.isdir(self._folder):  # noqa: PTH112 - the supervisor was killed
            shutil.rmtree(self._folder, ignore_errors=True)
        self._read()
        self._close_socket()
        self.exited.set()
        self._on_exit(self)

    def _read(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            while data := self._socket.recv(_READ_BYTES):
                self._incoming += data
            self._loop.remove_reader(self._socket)  # closed by the child, which then exits
        except BlockingIOError:
            pass
        except OSError:
            self._loop.remove_reader(self._socket)
        for frame in frames.split(self._incoming):
            self._on_frame(self, frame)

    def _write(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            while self._outgoing:
                sent = self._socket.sendmsg(itertools.islice(self._outgoing, _SEND_PARTS))
                while self._outgoing and sent >= len(self._outgoing[0]):
                    sent -= len(self._outgoing.popleft())
                if sent:
                    self._outgoing[0] = self._outgoing[0][sent:]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._write)
            return
        except OSError:  # the child is dead; `on_exit` comes
            self._outgoing.clear()
        self._loop.remove_writer(self._socket)

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


def _send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
