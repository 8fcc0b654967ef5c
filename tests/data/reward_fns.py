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
import tempfile
import time
from pathlib import Path

import numpy as np


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


def _greedy():
    held = []
    while True:
        held.append(np.empty(2**26, np.uint8))  # asked for, not used


def _helper():
    code = "import time; x = b'x' * (600 << 20); time.sleep(3600)"
    subprocess.run([sys.executable, "-c", code], check=False)


def _flood():
    for fd in (1, 2):
        for _ in range(1000):
            os.write(fd, b"flood " * 1000)


def _litter():
    for _ in range(5):
        fd, _ = tempfile.mkstemp()
        os.write(fd, b"x" * 1000)
    Path(tempfile.mkdtemp(), "file").write_text("x", encoding="ascii")


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
    "greedy": _greedy,
    "helper": _helper,
    "closefds": lambda: os.closerange(3, 4096),
    "fork": os.fork,
    "flood": _flood,
    "litter": _litter,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
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


def spawn_and(prompts, completions, folder, **_):
    """Starts processes that are hard to find again; then does what the completion says."""
    if folder[0]:
        for options in ({}, {"start_new_session": True}, {"start_new_session": True, "env": {}}):
            process = subprocess.Popen(["/bin/sleep", "3600"], **options)
            Path(folder[0], str(process.pid)).touch()
        # A daemon: its parents are gone.
        if not os.fork():
            os.setsid()
            if not (pid := os.fork()):
                os.execv("/bin/sleep", ["sleep", "3600"])
            Path(folder[0], str(pid)).touch()
            os._exit(0)
        os.wait()
    return faulty(prompts, completions)


def crowd(prompts, completions, **_):
    """Takes 300 MB and shares it with four forks for a while."""
    held = b"x" * (300 << 20)
    forks = []
    for _ in range(4):
        if not (pid := os.fork()):
            time.sleep(1.5)
            os._exit(len(held) % 2)
        forks.append(pid)
    for pid in forks:
        os.waitpid(pid, 0)
    return [1.0]


def logged(prompts, completions, log_extra, **_):
    """Reports the number of characters; then does what the completion says."""
    log_extra("characters", len(completions[0]))
    return faulty(prompts, completions)


def names(prompts, completions, log_extra, **_):
    """Reports columns that are named by the data."""
    for number in range(100):
        log_extra(f"{completions[0]}-{number}", number)
    return [1.0]


def slow_tail(prompts, completions, seconds, **_):
    """Sleeps as long as the row says."""
    time.sleep(seconds[0])
    return [1.0]


def steady(prompts, completions, **_):
    """Number of characters, after 20 ms."""
    time.sleep(0.02)
    return [len(completions[0])]


def marked(prompts, completions, folder, seconds, **_):
    """Leaves a file for every call, then sleeps as long as the row says; number of characters."""
    if folder[0]:
        Path(folder[0], f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(seconds[0])
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
    if completion == "fork":
        os.fork()
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


def scaled(prompts, completions, factor, *, offset=0.0, **columns):
    """Length times a factor plus an offset, which the rewards file may set."""
    return [len(completion) * factor + offset for completion in completions]


def rank(prompts, completions, **columns):
    """Length above the mean of the group, whose prompts must be one; misbehaves on request."""
    assert len(set(prompts)) == 1, prompts
    if "raise" in completions:
        raise RuntimeError("not this group")
    if "hang" in completions:
        time.sleep(60)
    if "short" in completions:
        return [0.0]
    mean = sum(map(len, completions)) / len(completions)
    return [None if c == "none" else len(c) - mean for c in completions]
