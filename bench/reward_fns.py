# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward functions of the benchmark: plain functions, the same for every way of running them."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from reward_server.reward_fns.mathematics import math  # noqa: F401 - measured by name

_NUMBER = re.compile(r"\\boxed\{\s*(-?[\d,]+(?:\.\d+)?)\s*\}")


def regex(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Compares the last boxed number: about 0.05 ms of CPU a row with its decoding left out."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        found = _NUMBER.findall(completion)
        rewards.append(float(bool(found) and found[-1].replace(",", "") == gold))
    return rewards


def math_verify(
    prompts: list[str], completions: list[str], answer: list[str], **_: Any
) -> list[float]:
    """Grades with math-verify: some milliseconds of CPU a row."""
    from math_verify import parse, verify

    return [
        float(verify(parse(f"${gold}$"), parse(completion)))
        for completion, gold in zip(completions, answer, strict=True)
    ]


def length(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Counts characters: next to no work."""
    return [float(len(completion)) for completion in completions]


async def judge(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Waits 50 ms a row, as a call to a judge does."""
    await asyncio.sleep(0.05)
    return [1.0] * len(completions)


def sleep(
    prompts: list[str], completions: list[str], seconds: list[float], **_: Any
) -> list[float]:
    """Takes as long as the row says, without using the CPU."""
    time.sleep(sum(seconds))
    return [1.0] * len(completions)


async def wait(
    prompts: list[str], completions: list[str], seconds: list[float], **_: Any
) -> list[float]:
    """Waits as long as the row says, as a call to a judge does."""
    await asyncio.sleep(max(seconds))
    return [1.0] * len(completions)


def stuck(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Hangs in C code for the row whose answer is "hang"."""
    for gold in answer:
        if gold == "hang":
            re.match(r"(a+)+$", "a" * 64 + "b")
    return [1.0] * len(completions)
