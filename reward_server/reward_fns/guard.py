# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Around each built-in function: the text of a completion never decides that a row has no reward.

A completion that cannot be graded earns 0.0: one that makes the function raise, and one that keeps
it busy for a quarter of the row's clock. A row without a reward leaves its group, so a policy would
learn to write what makes graders fail where it can't write what is right.

What is not the completion's doing is raised: `NotTheCompletionError`, OSError, a MemoryError while
the process has little left, and what an empty completion raises on the same row, too.
"""

from __future__ import annotations

import atexit
import logging
import math
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from reward_server.grading_errors import NotTheCompletionError, UngradableError

# Of the row's clock. CPU seconds, so that a busy machine turns no right answer into a wrong one.
_CPU_SHARE = 0.25
# Of the row's clock, in seconds that pass: for what works in processes of its own.
_WAIT_SHARE = 0.8
# How often CPU time is looked at, and raised again where a bare `except` caught it.
_TICK_S = 0.05

_logger = logging.getLogger(__name__)
_ungraded: Counter[tuple[str, str, str]] = Counter()

_RAISED = (NotTheCompletionError, OSError, KeyboardInterrupt)


class OutOfTime(BaseException):
    """Grading took more CPU time than a completion may cost.

    No Exception, so that libraries that catch those don't go on.
    """


class _Limit:
    """CPU time of the row that is being graded.

    A timer is set once a tick of CPU time, not once a row: rows take microseconds.

    Attributes:
        installed: whether there is a limit in this process.
        row_s: the row's clock while one is graded, else infinite.
    """

    def __init__(self) -> None:
        self.installed = False
        self.row_s = math.inf
        self._first: float | None = None
        self._armed = True  # nothing is set before `install`

    def install(self) -> None:
        if self.installed:
            return
        signal.signal(signal.SIGPROF, self._tick)
        # Without its handler, which Python takes away when it ends, the signal kills.
        atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)
        self.installed = True
        self._armed = False

    def start(self, row_s: float) -> None:
        self._first = None
        self.row_s = row_s
        if not self._armed:
            self._arm()

    def stop(self) -> None:
        self.row_s = math.inf

    def _arm(self) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_PROF, _TICK_S)

    def _tick(self, _: int, frame: FrameType | None) -> None:
        self._armed = False
        if self.row_s == math.inf:
            return
        self._arm()
        # The timer counts all threads; what counts is this one, which grades.
        now, cpu_s = time.thread_time(), self.row_s * _CPU_SHARE
        if self._first is None:
            self._first = now
        # This module must get to call `stop`.
        elif now - self._first > cpu_s and frame and frame.f_globals is not globals():
            raise OutOfTime(f"took more than {cpu_s:g} s of CPU time")


_limit = _Limit()


def install() -> None:
    """Sets limits of CPU time from now on; in the main thread, once in a process."""
    _limit.install()


def wait_s() -> float:
    """Seconds that grading of this row may wait for processes; infinite without limits."""
    return _limit.row_s * _WAIT_SHARE if _limit.installed else math.inf


class Guarded:
    """A built-in function that gives 0.0 for what it cannot grade.

    Args:
        call: the function, its parameters bound.
        name: its name in the log.
        row_s: the row's clock; of a group, the group's.
    """

    def __init__(self, call: Callable[..., Any], *, name: str, row_s: float) -> None:
        self._bare = call
        self._name = name
        self._row_s = row_s

    def __call__(self, **arguments: Any) -> Any:
        """Grades rows, each on its own.

        Args:
            **arguments: `completions`, the texts, and lists of as many values, or one value for
                all.

        Raises:
            NotTheCompletionError: the data, a parameter or the sandbox.
            OSError: the machine.
            MemoryError: the process has little memory left.
        """
        rows = len(arguments["completions"])
        if rows == 1:
            return self._grade(arguments, self._row_s)
        return [
            reward
            for row in range(rows)
            for reward in self._grade(_row(arguments, row, rows), self._row_s / rows)
        ]

    def _grade(self, arguments: dict[str, Any], row_s: float) -> Any:
        try:
            _limit.start(row_s)
            return self._bare(**arguments)
        except _RAISED:
            raise
        except BaseException as error:  # noqa: BLE001 - libraries raise anything, panics of Rust too
            _limit.stop()
            cause = error.__cause__ or error
            if isinstance(cause, MemoryError) and _memory_is_short():
                raise cause from None
            if not isinstance(error, UngradableError):
                # Raises if it was not the completion.
                _limit.start(row_s)
                self._bare(**arguments | _empty(arguments))
                _limit.stop()
            self._note(cause)
            return [0.0]
        finally:
            _limit.stop()

    def _note(self, error: BaseException) -> None:
        """Logs each kind of failure, without the model's text: the first, the tenth, ..."""
        kind, where = type(error).__name__, _place(error)
        key = (self._name, kind, where)
        _ungraded[key] += 1
        count = _ungraded[key]
        if str(count).strip("0") == "1":
            _logger.warning(
                "completion not graded, reward 0.0 function=%s error=%s at=%s count=%d",
                self._name, kind, where, count,
            )  # fmt: skip
        _logger.debug("completion not graded function=%s: %s", self._name, error, exc_info=error)


def _row(arguments: dict[str, Any], row: int, rows: int) -> dict[str, Any]:
    return {
        name: values[row : row + 1] if isinstance(values, list) and len(values) == rows else values
        for name, values in arguments.items()
    }


def _empty(arguments: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"completions": [""]}
    return empty | ({"completion_ids": [[]]} if "completion_ids" in arguments else {})


def _place(error: BaseException) -> str:
    """Names the line that raised; of all that the clock ended, none."""
    if isinstance(error, OutOfTime):
        return "-"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _memory_is_short() -> bool:
    """Whether what is left when grading has ended is less than half of what the process may take.

    Parsers raise MemoryError for texts that are nested deeply, with all memory free.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return False
    status = Path("/proc/self/status").read_text("ascii", errors="replace")
    data = next((line for line in status.splitlines() if line.startswith("VmData:")), "VmData: 0")
    return int(data.split()[1]) * 1024 > limit / 2
