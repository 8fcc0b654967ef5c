# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The reward of the tiny recipe with rows that go wrong, each of them every time it is run."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from pathlib import Path
from typing import Any

from reward_server.reward_fns.arithmetic import arithmetic as right

# Of 10,000 rows.
RATES = {"raise": 60, "none": 40, "exit": 6, "kill": 6, "hang": 3}
_JOURNAL = os.environ.get("CHAOS_JOURNAL", os.devnull)
# While this file is there no child process can load the functions.
BREAK = Path(os.environ.get("CHAOS_BREAK", "/nonexistent"))
# What a worker with other parameters pays, if it is asked.
OTHER_FACTOR = 1000.0

if BREAK.exists():
    raise OSError("made to fail")


def fate(step: int, prompt: str, completion: str) -> str:
    """What happens to a row, "" for most."""
    digest = hashlib.sha256(f"{step}|{prompt}|{completion}".encode()).digest()
    number = int.from_bytes(digest[:4], "big") % 10_000
    for kind, rate in RATES.items():
        if number < rate:
            return kind
        number -= rate
    return ""


def arithmetic(
    prompts: list[str],
    completions: list[str],
    answer: list[str],
    step: int,
    factor: float = 1.0,
    **_: Any,
) -> list[float | None]:
    """Rewards the right integer, unless the row's fate is another; writes a line for each run."""
    kind = fate(step, prompts[0], completions[0])
    with Path(_JOURNAL).open("a", encoding="utf-8", buffering=1) as journal:
        journal.write(f"{kind or 'ok'}\n")
    if kind == "raise":
        raise ValueError("made to fail")
    if kind == "none":
        return [None]
    if kind == "exit":
        os._exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        re.match(r"(a+)+$", "a" * 64 + "b")
    return [factor * reward for reward in right(prompts, completions, answer)]


EXAMPLE = {"prompt": "1+1=", "completion": "2", "columns": {"answer": "2"}}
