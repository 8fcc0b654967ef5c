# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The model of the recipe `smollm2`, loaded by Tunix's Llama loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from tunix.models.llama3 import model as llama3
from tunix.models.llama3 import params

if TYPE_CHECKING:
    from pathlib import Path

    from jax.sharding import Mesh

CONFIG = llama3.ModelConfig(
    num_layers=30,
    vocab_size=49152,
    embed_dim=576,
    hidden_dim=1536,
    num_heads=9,
    head_dim=64,
    num_kv_heads=3,
    rope_theta=100_000,
    norm_eps=1e-5,
    weight_tying=True,
    # Each process has all weights: half a gigabyte is soon held, but long in being gathered
    # for every token.
    shd_config=llama3.ShardingConfig.get_default_sharding(is_sampling=True),
)


def load(folder: Path, mesh: Mesh) -> llama3.Llama3:
    """Loads the weights in float32, the fastest type on CPUs.

    Args:
        folder: with model.safetensors.
        mesh: with the axes "fsdp", of the rows, and "tp", which must divide the 3 key heads.
    """
    return params.create_model_from_safe_tensors(
        str(folder.resolve()), CONFIG, mesh, dtype=jnp.float32
    )
