# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The model of the recipe `tiny`: made sharded, warmed up, measured. The same on any process count.

Legend: B global rows, P prompt length, T completion length.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from numpy.typing import NDArray
from tunix.models.qwen3 import model as qwen3
from tunix.rl import common
from tunix.rl.rollout.base_rollout import RolloutConfig

from trainer.arrays import RowArrays
from trainer.recipes import sharded, tiny
from trainer.recipes.recipe import Settings

WARM_START_STEPS = 60
WARM_START_ROWS = 32
WARM_START_LEARNING_RATE = 1.7e-4
ANSWER_LENGTH = 2  # a digit and the end token
SAMPLES_PER_PROBLEM = 40
# Samples of the measurement differ from those of training and evaluation.
_ACCURACY_STREAM = 2
_PAD = tiny.VOCABULARY.index(tiny.PAD_TOKEN)
_END = tiny.VOCABULARY.index(tiny.END_TOKEN)


def make_model(mesh: Mesh, *, seed: int, vocab_size: int = len(tiny.VOCABULARY)) -> qwen3.Qwen3:
    """Makes a model of random weights, sharded from the start."""
    config = qwen3.ModelConfig(
        num_layers=2,
        vocab_size=vocab_size,
        embed_dim=64,
        hidden_dim=128,
        num_heads=4,
        head_dim=16,
        num_kv_heads=2,
        rope_theta=10_000,
        norm_eps=1e-6,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
    )
    return sharded.make(lambda: qwen3.Qwen3(config, rngs=nnx.Rngs(seed)), mesh)


def _rows(chosen: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Token ids of problems and of their answers with the end token, by problem number."""
    prompts = np.array([tiny.encode(prompt) for prompt, _ in tiny.problems()], np.int32)
    answers = np.array([[*tiny.encode(answer), _END] for _, answer in tiny.problems()], np.int32)
    return prompts[chosen], answers[chosen]


def warm_start(model: qwen3.Qwen3, mesh: Mesh, *, seed: int) -> qwen3.Qwen3:
    """Trains a little on right answers, so that some samples earn a reward.

    Every process has the same rows and places its shards of them.
    """
    graph, params = nnx.split(model)
    optimizer = optax.adam(WARM_START_LEARNING_RATE)
    shardings = jax.tree.map(lambda x: x.sharding, params)
    arrays = RowArrays(mesh, ("fsdp",))

    def loss(params: Any, prompts: jax.Array, answers: jax.Array) -> jax.Array:
        logps = common.compute_per_token_logps(
            graph, params, prompts, answers, _PAD, _END, stop_gradient=False
        )
        return -jnp.mean(logps)

    @jax.jit
    def start(params: Any) -> Any:
        return optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, prompts: jax.Array, answers: jax.Array) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params, prompts, answers), state)
        params = optax.apply_updates(params, updates)
        return jax.lax.with_sharding_constraint(params, shardings), state

    pick = np.random.default_rng(seed)
    mine = arrays.layout.local_rows(WARM_START_ROWS)
    with mesh:
        state = start(params)
        for _ in range(WARM_START_STEPS):
            chosen = pick.integers(0, len(tiny.problems()), WARM_START_ROWS)
            rows = [arrays.from_local_rows(x[mine], WARM_START_ROWS) for x in _rows(chosen)]
            # Several steps under way at once can block each other in the CPU's collectives.
            params, state = jax.block_until_ready(step(params, state, *rows))
    nnx.update(model, params)
    return model


def accuracy(rollout: Any, settings: Settings, *, seed: int) -> float:
    """Measures the share of samples that are the right answer and nothing else.

    Args:
        rollout: the cluster's `ShardedRollout`.
        settings: of the recipe; gives the temperature.
        seed: decides the samples.

    Returns:
        The share over all problems, equal on all processes.
    """
    arrays: RowArrays = rollout.arrays
    count = len(tiny.problems())
    n = -(-count * SAMPLES_PER_PROBLEM // arrays.layout.shards) * arrays.layout.shards
    rows = arrays.layout.local_rows(n)
    prompts = [tiny.problems()[row % count][0] for row in rows]
    expected = np.full((len(rows), settings.max_tokens_to_generate), _PAD, np.int32)
    expected[:, :ANSWER_LENGTH] = _rows(rows % count)[1]
    config = RolloutConfig(
        max_prompt_length=settings.max_prompt_length,
        max_tokens_to_generate=settings.max_tokens_to_generate,
        temperature=settings.temperature,
        top_p=1.0,
        seed=seed,
    )
    with arrays.mesh:
        sampled = rollout.generate_arrays(prompts, rows, config, stream=_ACCURACY_STREAM)
    share = jax.jit(
        lambda got, want: jnp.mean(jnp.all(got == want, axis=1), dtype=jnp.float32),
        out_shardings=arrays.replicated,
    )(sampled.completion_ids, arrays.from_local_rows(expected, n))
    return float(share)
