# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Recipes: a model, a task and settings that train with one command.

`load` finds one by its name. What a recipe offers is in `trainer.recipes.recipe`.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.recipes.recipe import Recipe

NAMES = ("tiny", "smollm2")


def load(name: str, **options: Any) -> Recipe:
    """Imports a recipe; needs no JAX.

    Args:
        name: one of `NAMES`.
        options: what to change about it, like `lora_rank`; None leaves it as it is.

    Raises:
        ValueError: there is no such recipe, it has no such option, or the value can't be.

    Example:
        >>> load("tiny").name
        'tiny'
    """
    if name not in NAMES:
        raise ValueError(f"`recipe` must be one of {', '.join(NAMES)}, got {name!r}.")
    recipe: Recipe = importlib.import_module(f"trainer.recipes.{name}").RECIPE
    given = {option: value for option, value in options.items() if value is not None}
    known = {field.name for field in dataclasses.fields(recipe)}
    for option in given:
        if option not in known:
            flag = option.replace("_", "-")
            raise ValueError(f"--{flag} must be left out: recipe {name} has no such option.")
    return dataclasses.replace(recipe, **given)
