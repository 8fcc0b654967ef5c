# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Recipes: a model, a task and settings that train with one command.

`load` finds one by its name. What a recipe offers is in `trainer.recipes.recipe`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.recipes.recipe import Recipe

NAMES = ("tiny", "smollm2")


def load(name: str) -> Recipe:
    """Imports a recipe; needs no JAX.

    Args:
        name: one of `NAMES`.

    Raises:
        ValueError: there is no such recipe.

    Example:
        >>> load("tiny").name
        'tiny'
    """
    if name not in NAMES:
        raise ValueError(f"`recipe` must be one of {', '.join(NAMES)}, got {name!r}.")
    recipe: Recipe = importlib.import_module(f"trainer.recipes.{name}").RECIPE
    return recipe
