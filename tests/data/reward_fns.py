# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward functions that go wrong in every way, told by the completion."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path


def _hang_in_regex() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def _eat_memory() -> None:
    held = []
    while True:
        held.append(b"x" * 2**22)
        time.sleep(0.005)


def _raise_base() -> None:
    class OddError(BaseException):
        pass

    raise OddError("odd")


FAULTS = {
    "raise": lambda: 1 / 0,
    "base": _raise_base,
    "exit": lambda: sys.exit(3),
    "abort": os.abort,
    "hardexit": lambda: os._exit(7),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: ctypes.string_at(0),
    "sleep": lambda: time.sleep(3600),
    "regex": _hang_in_regex,
    "memory": _eat_memory,
    "memoryerror": lambda: (_ for _ in ()).throw(MemoryError()),
    "print": lambda: print("x" * 10_000_000),
}
VALUES = {
    "none": [None],
    "nan": [float("nan")],
    "inf": [float("inf")],
    "two": [1.0, 2.0],
    "empty": [],
}


def faulty(prompts, completions, **_):
    """Does what the completion says; else 1.0."""
    (completion,) = completions
    if completion in FAULTS:
        FAULTS[completion]()
    return VALUES.get(completion, [1.0])


def length(prompts, completions, **_):
    """Number of characters."""
    return [len(c) for c in completions]


def pid(prompts, completions, **_):
    """Process id of the child; small sleep so that all children get work."""
    time.sleep(0.002)
    return [os.getpid()]


def spawn(prompts, completions, folder, **_):
    """Starts two grandchildren, one in a session of its own, and hangs."""
    if not folder[0]:
        return [1.0]
    for own in (False, True):
        process = subprocess.Popen(["sleep", "3600"], start_new_session=own)
        Path(folder[0], str(process.pid)).touch()
    time.sleep(3600)
    return [1.0]


def slow_tail(prompts, completions, seconds, **_):
    """Sleeps as long as the row says."""
    time.sleep(seconds[0])
    return [1.0]


def steady(prompts, completions, **_):
    """Number of characters, after 20 ms."""
    time.sleep(0.02)
    return [len(completions[0])]


def per_row(prompt, completion, answer, mode, step, log_extra, tail="-"):
    """Called with one row at a time."""
    log_extra("characters", len(completion))
    return float(completion == answer and mode == "eval" and step == 7 and prompt == "p")


async def counted_judge(prompts, completions, folder, row, **_):
    """Leaves a file for every call; fails for one completion."""
    if folder[0]:
        (Path(folder[0]) / f"{row[0]}-{time.monotonic_ns()}").touch()
    if completions[0] == "no":
        raise RuntimeError("judge said no")
    return [0.25]


async def judge(prompts, completions, **_):
    """Waits 50 ms like a remote judge; hangs, blocks or fails when told."""
    (completion,) = completions
    if completion == "sleep":
        await asyncio.sleep(3600)
    if completion == "stubborn":
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
    if completion == "block":
        time.sleep(3600)  # noqa: ASYNC251 - the fault under test
    if completion == "raise":
        raise RuntimeError("judge said no")
    if completion == "exit":
        sys.exit(1)
    await asyncio.sleep(0.05)
    return [0.5]


def no_prompts(completions, answer):
    """Takes no prompts and no other columns."""
    return [float(a == c) for a, c in zip(answer, completions, strict=True)]


def wants_answer(prompts, completions, answer):
    """Cannot score an empty answer."""
    return [float(int(answer[0]))]
