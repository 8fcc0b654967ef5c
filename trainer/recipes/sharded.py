# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Models of random weights that are sharded from the start, the same on any process count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh


def make(create: Callable[[], Any], mesh: Mesh) -> Any:
    """Makes a model in one program, so that no process ever has all of its weights.

    Args:
        create: makes the model; its weights say how they are sharded, as Tunix's do.
        mesh: that they shall lie on.

    Example:
        `sharded.make(lambda: qwen3.Qwen3(config, rngs=nnx.Rngs(0)), mesh)`
    """

    @nnx.jit
    def made() -> Any:
        model = create()
        state = nnx.state(model)
        specs = nnx.get_partition_spec(state)
        nnx.update(model, jax.lax.with_sharding_constraint(state, specs))
        return model

    with mesh:
        return made()
