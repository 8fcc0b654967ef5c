# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""LoRA for the models of recipes: small matrices to train beside frozen weights, by qwix."""

from __future__ import annotations

from typing import Any

import jax
import qwix
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Attention and feed-forward weights of Tunix's Llama 3 and Qwen3.
_MODULES = r".*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
# The product of the two matrices is scaled by alpha / rank.
_ALPHA_PER_RANK = 2.0


def add(model: Any, mesh: Mesh, *, rank: int, seed: int) -> Any:
    """Makes a model with LoRA matrices; it shares the weights of the given one, which stays.

    The matrices are made sharded, the same for any number of processes: qwix's own way runs the
    model op by op, which arrays of several processes do not allow.

    Args:
        model: a model of Tunix.
        mesh: that its weights lie on.
        rank: of the matrices.
        seed: decides their first values.

    Example:
        `lora.add(model, mesh, rank=8, seed=0)`
    """
    graph, weights = nnx.split(model)
    provider = qwix.LoraProvider(module_path=_MODULES, rank=rank, alpha=_ALPHA_PER_RANK * rank)

    def with_lora(weights: Any) -> Any:
        base = nnx.merge(graph, weights)
        inputs = base.get_model_input()
        return qwix.apply_lora_to_model(base, provider, **inputs, rngs=nnx.Rngs(seed))

    def matrices(weights: Any) -> Any:
        return nnx.state(with_lora(weights), nnx.LoRAParam)

    with mesh:
        lora_graph, shapes, *_ = nnx.split(nnx.eval_shape(with_lora, weights), nnx.LoRAParam, ...)
        shardings = jax.tree.map(
            lambda spec: NamedSharding(mesh, spec or PartitionSpec()),
            nnx.get_partition_spec(shapes),
            is_leaf=lambda spec: spec is None or isinstance(spec, PartitionSpec),
        )
        made = jax.jit(matrices, out_shardings=shardings)(weights)
    return nnx.merge(lora_graph, made, weights)
