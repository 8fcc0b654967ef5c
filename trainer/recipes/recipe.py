# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a recipe offers to `trainer.train` and to launchers. No JAX is needed to read it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Batch = dict[str, list[str]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes and rates of a recipe.

    Attributes:
        steps: training steps unless the caller says otherwise.
        prompts_per_step: global prompts of one step.
        num_generations: completions of each prompt.
        learning_rate: of Adam.
        max_prompt_length: tokens.
        max_tokens_to_generate: tokens.
        temperature: of sampling.
        axes: mesh axes and the sizes they have in a demo on one machine.
        show_samples: samples to print after a step.
        show_samples_every: steps from one such step to the next.
    """

    steps: int
    prompts_per_step: int
    num_generations: int
    learning_rate: float
    max_prompt_length: int
    max_tokens_to_generate: int
    temperature: float
    axes: tuple[tuple[str, int], ...]
    show_samples: int = 0
    show_samples_every: int = 1


class Recipe(Protocol):
    """A model, a task and settings; a dataclass whose fields are its options."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def name(self) -> str:
        """Name for the command line."""
        ...

    @property
    def settings(self) -> Settings:
        """Sizes and rates."""
        ...

    @property
    def rewards_file(self) -> Path:
        """Rewards file for the reward server and worker."""
        ...

    @property
    def tokenizer_dir(self) -> Path:
        """Folder with tokenizer.json and tokenizer_config.json; it exists after `prepare`."""
        ...

    def prepare(self) -> None:
        """Makes the files that are not in the package, if there are any.

        Raises:
            RecipeError: something must be installed first.
        """
        ...

    def tokenizer(self) -> Any:
        """Loads the tokenizer for Tunix."""
        ...

    def model(self, mesh: Any, *, seed: int) -> Any:
        """Makes the model, sharded on a mesh and ready for GRPO."""
        ...

    def batches(self, steps: int, *, seed: int) -> Iterator[Batch]:
        """Yields global batches: "prompts" and the columns of the reward functions.

        Raises:
            RecipeError: the task has no such prompts.
        """
        ...

    def accuracy(self, rollout: Any, *, seed: int) -> float | None:
        """Measures how often sampled completions are right, without any reward function.

        Returns:
            The share, equal on all processes, or None if the recipe has no such measure.
        """
        ...


class RecipeError(Exception):
    """A recipe cannot run; the message says what to do."""


def check_lora_rank(rank: int) -> None:
    """Checks the option that several recipes have.

    Raises:
        ValueError: names the flag, the rule and the value.
    """
    if rank < 0:
        raise ValueError(f"--lora-rank must be >= 0, got {rank}.")
