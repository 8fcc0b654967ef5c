# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe `tiny`: a two-layer Qwen3 learns to add the digits 0 to 4. Runs on a laptop.

Here the task, its tokenizer and its settings, without JAX; the model is in
`trainer.recipes.tiny_model`.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.recipes.recipe import Batch, Settings, check_lora_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(__file__).parent
DIGITS = range(5)
PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN = "<pad>", "<end>", "<unk>"
# 32 tokens, as many as the model's embedding has rows: every id it can sample has a text.
VOCABULARY = (PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN, *"0123456789+-= abcdefghijklmno")


def problems() -> list[tuple[str, str]]:
    """Lists all prompts with their answers.

    Example:
        >>> problems()[7]
        ('1+2=', '3')
    """
    return [(f"{a}+{b}=", str(a + b)) for a in DIGITS for b in DIGITS]


def encode(text: str) -> list[int]:
    """Turns text of known characters into token ids.

    Raises:
        ValueError: a character has no token.
    """
    return [VOCABULARY.index(character) for character in text]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tiny:
    """The recipe; see `trainer.recipes.recipe.Recipe`.

    Attributes:
        lora_rank: rank of the LoRA matrices that are trained; 0 trains all weights.
    """

    lora_rank: int = 0
    name = "tiny"
    rewards_file = _FOLDER / "tiny_rewards.toml"
    tokenizer_dir = _FOLDER / "tiny_tokenizer"
    settings = Settings(
        steps=160,
        prompts_per_step=16,
        num_generations=16,
        learning_rate=5e-4,
        max_prompt_length=4,
        max_tokens_to_generate=4,
        temperature=1.0,
        axes=(("fsdp", 2), ("tp", 2)),
    )

    def __post_init__(self) -> None:
        """Checks the options."""
        check_lora_rank(self.lora_rank)

    def prepare(self) -> None:
        """Does nothing: all files are in the package."""

    def tokenizer(self) -> Any:
        """Loads the character tokenizer."""
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - slow

        return PreTrainedTokenizerFast.from_pretrained(self.tokenizer_dir)

    def model(self, mesh: Any, *, seed: int) -> Any:
        """Makes the model and warms it up by supervised steps, up to half right."""
        from trainer.recipes import lora, tiny_model  # noqa: PLC0415 - need JAX

        warm = tiny_model.warm_start(tiny_model.make_model(mesh, seed=seed), mesh, seed=seed)
        return lora.add(warm, mesh, rank=self.lora_rank, seed=seed) if self.lora_rank else warm

    def batches(self, steps: int, *, seed: int) -> Iterator[Batch]:
        """Yields batches of different problems with the column "answer"."""
        pick = random.Random(seed)  # noqa: S311 - the same on all processes
        for _ in range(steps):
            chosen = pick.sample(problems(), self.settings.prompts_per_step)
            yield {"prompts": [p for p, _ in chosen], "answer": [a for _, a in chosen]}

    def accuracy(self, rollout: Any, *, seed: int) -> float | None:
        """Samples every problem often at the training temperature; exact match counts."""
        from trainer.recipes import tiny_model  # noqa: PLC0415 - needs JAX

        return tiny_model.accuracy(rollout, self.settings, seed=seed)


RECIPE = Tiny()
