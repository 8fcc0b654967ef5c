# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe `tiny`: its task and its tokenizer. No model."""

from __future__ import annotations

import itertools

import pytest
from tokenizers import Tokenizer

from reward_server.config import RewardsConfig
from trainer import recipes
from trainer.recipes import tiny


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The tokenizer as the reward server loads it."""
    return Tokenizer.from_file(str(tiny.RECIPE.tokenizer_dir / "tokenizer.json"))


def test_vocabulary_is_the_tokenizers(tokenizer):
    """The module's list of tokens and the file agree: ids of one are ids of the other."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    assert [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])] == list(
        tiny.VOCABULARY
    )


def test_text_survives_the_tokenizer(tokenizer):
    """Every known character is one token and comes back, spaces included."""
    text = "".join(tiny.VOCABULARY[3:]) + " 12+3= "
    ids = tokenizer.encode(text).ids
    assert ids == tiny.encode(text)
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_left_out(tokenizer):
    """Pad and end differ and do not show in decoded text."""
    pad, end = (tiny.VOCABULARY.index(token) for token in (tiny.PAD_TOKEN, tiny.END_TOKEN))
    assert pad != end
    assert tokenizer.decode([pad, *tiny.encode("7"), end, pad]) == "7"


def test_unknown_character_has_no_id():
    """A character outside the vocabulary is an error, not another token."""
    with pytest.raises(ValueError, match="not in"):
        tiny.encode("2*3")


def test_answers_are_right():
    """Each of the 25 problems is there once and its answer is the sum, one digit."""
    problems = dict(tiny.problems())
    assert len(problems) == 25
    for prompt, answer in problems.items():
        a, b = prompt.removesuffix("=").split("+")
        assert int(answer) == int(a) + int(b)
        assert len(answer) == 1


def test_batches_are_the_same_on_all_processes():
    """The seed alone decides the batches; a batch has different problems with their answers."""
    first, again, other = (list(tiny.RECIPE.batches(3, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    known = dict(tiny.problems())
    for batch in first:
        assert len(set(batch["prompts"])) == tiny.RECIPE.settings.prompts_per_step
        assert batch["answer"] == [known[prompt] for prompt in batch["prompts"]]


def test_prompts_fit():
    """No prompt is longer than the settings say."""
    longest = max(len(tiny.encode(prompt)) for prompt, _ in tiny.problems())
    assert longest <= tiny.RECIPE.settings.max_prompt_length


@pytest.mark.parametrize("name", recipes.NAMES)
def test_rewards_file_loads(name):
    """The rewards file of each recipe is a valid one."""
    assert RewardsConfig.load(recipes.load(name).rewards_file).functions


@pytest.mark.parametrize(("name", "devices"), itertools.product(recipes.NAMES, (1, 2, 4)))
def test_rows_fit_the_devices(name, devices):
    """The rows of a step can be cut over up to 4 data shards."""
    settings = recipes.load(name).settings
    assert settings.prompts_per_step * settings.num_generations % devices == 0


def test_unknown_recipe():
    """The error lists the names."""
    with pytest.raises(ValueError, match="tiny"):
        recipes.load("huge")
