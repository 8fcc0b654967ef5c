# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifiers of the reasoning-gym package."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from reasoning_gym import factory

EXAMPLE: dict[str, Any] = {
    "prompt": "State the final answer to the following arithmetic problem: 2 + 2 =",
    "completion": "4",
    "columns": {"task": "basic_arithmetic", "entry": {"answer": "4", "metadata": {}}},
}


def reasoning_gym(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    task: list[str],
    entry: list[dict[str, Any] | str],
    **_: Any,
) -> list[float]:
    """Rewards answers as the reasoning-gym dataset of the row does.

    Contract: the value of the dataset's `score_answer`, in [0, 1]. The answer is the text of the
    last closed `<answer>…</answer>`, or the whole completion without one; stripped either way.
    `task` is the name of the dataset, `entry` its item as a dict or as JSON text. An unknown task
    raises, so the row has an error and no reward.

    Some of the package's verifiers call `eval` on the answer or on `entry` (countdown, n_queens and
    others): the model and the caller can run code in the child process. See docs/security.md.

    Example:
        `reasoning_gym(["2 + 2 ="], ["4"], ["basic_arithmetic"], [{"answer": "4"}])` gives `[1.0]`.
    """
    rewards: list[float] = []
    for completion, name, item in zip(completions, task, entry, strict=True):
        fields = json.loads(item) if isinstance(item, str) else item
        rewards.append(float(_verifier(name)(_answer(completion), fields)))
    return rewards


@functools.cache
def _verifier(task: str) -> Callable[[str, dict[str, Any]], float]:
    found: Callable[[str, dict[str, Any]], float] = factory.get_score_answer_fn(task)
    return found


def _answer(completion: str) -> str:
    end = completion.rfind("</answer>")
    start = completion.rfind("<answer>", 0, end) if end >= 0 else -1
    if start < 0:
        return completion.strip()
    return completion[start + len("<answer>") : end].strip()
