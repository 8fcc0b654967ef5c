# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifiers of the reasoning-gym package."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any

from reasoning_gym import factory

from reward_server.grading_errors import BadParameter, UngradableError
from reward_server.reward_fns.errors import BadGold

# Their verifiers run `eval` or SymPy's parser, which is one, on the answer or on the entry.
EVALUATING = frozenset(
    {
        "binary_matrix",
        "bitwise_arithmetic",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "number_sorting",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)

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
    *,
    allow_eval: bool = False,
    **_: Any,
) -> list[float]:
    """Rewards answers as the reasoning-gym dataset of the row does.

    Contract: the value of the dataset's `score_answer`, in [0, 1]. The answer is the text of the
    last closed `<answer>…</answer>`, or the whole completion without one; stripped either way.
    One that the verifier can't grade, or gives no number for, earns 0.0. `task` is the name of the
    dataset, `entry` its item as a dict or as JSON text.

    The verifiers of some tasks (`EVALUATING`) run the answer, which the model wrote, as Python.
    Their rows have an error unless `allow_eval` is set, in the rewards file:
    `params = {allow_eval = true}`. Do that only where the model may run code in the worker.

    Raises:
        BadGold: there is no such task, or the verifier can't grade the entry's own answer.
        BadParameter: the task needs `allow_eval`.

    Example:
        `reasoning_gym(["2 + 2 ="], ["4"], ["basic_arithmetic"], [{"answer": "4"}])` gives `[1.0]`.
    """
    rewards: list[float] = []
    for completion, name, item in zip(completions, task, entry, strict=True):
        if name in EVALUATING and not allow_eval:
            raise BadParameter(
                f"the verifier of `task` {name!r} runs answers as code."
                " Set params = {allow_eval = true} if the model may do that."
            )
        text = item if isinstance(item, str) else json.dumps(item, default=str)
        _check(name, text)
        fields = json.loads(text) if isinstance(item, str) else item
        try:
            reward = float(_verifier(name)(_answer(completion), fields))
        except Exception as error:
            raise UngradableError(name) from error
        rewards.append(reward if math.isfinite(reward) else 0.0)
    return rewards


@functools.lru_cache(maxsize=1024)
def _check(task: str, text: str) -> None:
    """Lets the verifier grade the entry's own answer, so that bad data shows for any completion."""
    try:
        verifier = _verifier(task)
    except ValueError:
        raise BadGold("task", "a dataset of reasoning-gym", task) from None
    try:
        fields = json.loads(text)
        verifier(fields.get("answer"), fields)
    except Exception as error:  # noqa: BLE001 - verifiers raise anything
        rule = f"an item of {task} ({type(error).__name__}: {error})"
        raise BadGold("entry", rule, text) from None


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
