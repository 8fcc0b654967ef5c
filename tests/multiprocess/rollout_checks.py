# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What rollouts take and leave, in one process with 8 devices and no server.

Prints what the checks find that are named on the command line, as JSON.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh
from tunix.models.qwen3 import model as qwen3
from tunix.rl.rollout.base_rollout import RolloutConfig

from tests.multiprocess import scenarios
from tests.multiprocess.learners import make_learner
from tests.multiprocess.option_scenarios import HashEngine
from trainer import LocalRollout
from trainer.recipes import sharded
from trainer.rollout import ShardedRollout, _keep_top

MIB = 2**20


def engine_of(tp, cache_size, heads=8):
    """A rollout engine of a model whose KV cache outweighs all else, on a mesh of 8 devices."""
    mesh = scenarios.make_mesh((8 // tp, tp))
    config = qwen3.ModelConfig(
        num_layers=1,
        vocab_size=32,
        embed_dim=32,
        hidden_dim=64,
        num_heads=8,
        head_dim=16,
        num_kv_heads=heads,
        rope_theta=10_000,
        norm_eps=1e-6,
    )
    model = sharded.make(lambda: qwen3.Qwen3(config, rngs=nnx.Rngs(0)), mesh)
    rollout = RolloutConfig(
        max_prompt_length=8, max_tokens_to_generate=8, kv_cache_size=cache_size, temperature=1.0
    )
    tokenizer = scenarios.tokenizer()
    return ShardedRollout(
        rollout_actor=model, tokenizer=tokenizer, mesh=mesh, rollout_config=rollout
    ), rollout


def memory(tp, rows=32, cache_size=1024):
    """Compiled memory of a device for prefill and decode, beside its share of the KV cache."""
    engine, _ = engine_of(tp, cache_size)
    rows_of = engine.arrays.row_sharding
    weights = engine._sampler.model_def_and_state()[1]
    ids = jax.ShapeDtypeStruct((rows, 8), jnp.int32, sharding=rows_of)
    keys = jax.ShapeDtypeStruct((rows, 2), jnp.uint32, sharding=rows_of)
    settings = {"total": 16, "temperature": 1.0, "top_p": 1.0, "top_k": None, "ends": (1,)}
    with engine.arrays.mesh:
        prefill = engine._prefill.lower(weights, ids, keys, **settings)
        compiled = prefill.compile()
        state = jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            prefill.out_info,
            compiled.output_shardings,
        )
        decode = engine._decode.lower(weights, state, ends=(1,)).compile()

    def mib(program):
        m = program.memory_analysis()
        held = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes
        return (held + m.temp_size_in_bytes) / MIB

    cache = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state.cache)) / 8 / MIB
    return {"cache": cache, "prefill": mib(compiled), "decode": mib(decode)}


def uneven_heads():
    """Key-value heads that tensor parallelism does not divide."""
    engine, config = engine_of(4, 16, heads=2)
    with engine.arrays.mesh:
        return engine.generate([*scenarios.PROMPTS[:8]], config).text


def left_behind():
    """Bytes of live arrays after each of three clusters in a row is over, and of the weights."""
    mesh = Mesh(np.array(jax.devices()[:2]).reshape(2, 1), ("fsdp", "tp"))
    local = functools.partial(LocalRollout, engine=HashEngine())
    out = {}
    for name, engine in {"ShardedRollout": ShardedRollout, "LocalRollout": local}.items():
        out[name] = []
        for _ in range(3):
            use_cluster(mesh, engine, train=engine is ShardedRollout)
            gc.collect()
            out[name].append(sum(x.nbytes for x in jax.live_arrays()))
    weights = nnx.state(scenarios.make_model(mesh), nnx.Param)
    return {"live": out, "weights": sum(x.nbytes for x in jax.tree.leaves(weights))}


def use_cluster(mesh, engine, *, train):
    """Makes a cluster, samples or trains for a step with it, and drops it."""
    scenario = {"steps": 1, "mini": 8, "train_micro": 4}
    cluster = scenarios.make_cluster(mesh, scenario, engine)
    batch = {"prompts": np.array(scenarios.PROMPTS[:8]), "answer": np.array(scenarios.ANSWERS[:8])}
    if not train:
        config = cluster.cluster_config.rollout_config
        cluster.rollout.generate(batch["prompts"].tolist(), config)
        return
    learner = make_learner(
        scenario,
        rl_cluster=cluster,
        reward_fns=scenarios.in_process(),
        reward_path="allgather",
        data="replicated",
    )
    learner.train([batch])


def generators():
    """Samples by each of JAX's generators, of a whole batch and of its second half alone."""
    out = {}
    engine, config = engine_of(2, 16)  # its weights are drawn by the default generator
    row_ids = np.arange(16)
    for name in ("threefry2x32", "rbg"):
        jax.config.update("jax_default_prng_impl", name)
        with engine.arrays.mesh:
            whole = engine.generate_arrays(scenarios.PROMPTS, row_ids, config)
            half = engine.generate_arrays(scenarios.PROMPTS[8:], row_ids[8:], config)
        out[name] = [np.asarray(x.completion_ids).tolist() for x in (whole, half)]
    jax.config.update("jax_default_prng_impl", "threefry2x32")
    return out


def ties():
    """How many of 16 equal logits top-k and top-p leave."""
    logits = jnp.zeros((2, 16), jnp.bfloat16)
    kept = [_keep_top(logits, 1.0, 4), _keep_top(logits, 0.5, None)]
    return [np.isfinite(np.asarray(x, np.float32)).sum(axis=1).tolist() for x in kept]


def explicit_axes():
    """What a mesh with axes of the type Explicit is answered."""
    from trainer.arrays import RowArrays

    mesh = jax.make_mesh((4, 2), ("fsdp", "tp"), axis_types=(AxisType.Explicit,) * 2)
    try:
        RowArrays(mesh, ("fsdp",))
    except ValueError as error:
        return str(error)
    return ""


def programs():
    """Programs that a rollout compiles for three batches of a shape, and for other end tokens."""
    engine, config = engine_of(2, 16)
    with engine.arrays.mesh:
        for start in (0, 8, 0):
            engine.generate_arrays(
                scenarios.PROMPTS[start : start + 8], np.arange(start, start + 8), config
            )
        counts = [engine._prefill._cache_size(), engine._decode._cache_size()]
        config.eos_tokens = [2]
        ended = engine.generate_arrays(scenarios.PROMPTS[:8], np.arange(8), config)
    return {"counts": counts, "other_end": np.asarray(ended.completion_ids).tolist()}


def main():
    """Prints what is asked for."""
    checks = {
        **{f"memory_{tp}": functools.partial(memory, tp) for tp in (2, 4, 8)},
        "uneven_heads": uneven_heads,
        "left_behind": left_behind,
        "generators": generators,
        "ties": ties,
        "explicit_axes": explicit_axes,
        "programs": programs,
    }
    # What is made, used and dropped again is compiled once.
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        found = {name: checks[name]() for name in sys.argv[1:]}
    print("RESULT", json.dumps(found))


if __name__ == "__main__":
    main()
