# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the multi-process tests: each runs on every process and returns plain values."""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import psutil
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from tunix.generate import sampler as tunix_sampler
from tunix.models.qwen3 import model as qwen3
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl import utils as rl_utils
from tunix.rl.rollout.base_rollout import RolloutConfig

from tests.multiprocess.learners import make_learner
from trainer import (
    InProcessReward,
    ProcessesDisagree,
    RewardClient,
    ShardedRollout,
    advantage,
)
from trainer.agreement import Agreement
from trainer.arrays import RowArrays

PROMPTS = [f"{a}+{b}=" for a in range(4) for b in range(4)]
# Of all kinds that datasets hold, one for each prompt.
VALUES = [
    *("text", "ä 🦙", 7, True, 2.5, None, 2**70, [1, "a"], [["x"], ["y", None]], {"k": [1, {}]}),
    *(np.int64(3), np.float32(0.5), np.array([1, 2]), {"gt": jnp.arange(2)}, (False, 0), []),
]
PLAIN = [*VALUES[:10], 3, 0.5, [1, 2], {"gt": [0, 1]}, [False, 0], []]
BAD_PROMPTS = {"bytes": b"1+1=", "surrogate": "1+1=\ud83d"}
# Row ids that this process has sent in the scenario under way.
SENT = []
ANSWERS = [str(a + b) for a in range(4) for b in range(4)]


def char_tokenizer() -> Tokenizer:
    """A character tokenizer of 32 tokens, as the model has, with pad 0 and end 1."""
    vocabulary = {
        token: i for i, token in enumerate(["<pad>", "<end>", *"0123456789+-= abcdefghijklmnop"])
    }
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens(["<pad>", "<end>"])
    return made


def tokenizer():
    """The character tokenizer as Tunix takes it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=char_tokenizer(), pad_token="<pad>", eos_token="<end>"
    )


def in_process():
    """The reward functions of the servers, for this process."""
    from tests.multiprocess.conftest import REWARD_FNS

    names = {}
    exec(REWARD_FNS, names)
    return [names["letters"], InProcessReward(fn=names["length"], weight=0.5)]


def make_mesh(shape, order=None):
    """A mesh of all devices, in another order if one is given."""
    devices = np.array(jax.devices())
    if order is not None:
        devices = devices[np.array(order)]
    return Mesh(devices.reshape(shape), ("fsdp", "tp"))


def make_model(mesh, seed=0, critic=False, layers=1, vocab_size=32):
    """A small Qwen3, sharded, the same for every number of processes; as a critic if asked."""
    sharding = qwen3.ShardingConfig.get_default_sharding()
    config = qwen3.ModelConfig(
        num_layers=layers,
        vocab_size=vocab_size,
        embed_dim=32,
        hidden_dim=64,
        num_heads=4,
        head_dim=8,
        num_kv_heads=2,
        rope_theta=10_000,
        norm_eps=1e-6,
        shd_config=sharding,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
    )

    def create():
        model = qwen3.Qwen3(config, rngs=nnx.Rngs(0))
        return rl_utils.create_critic_model(model) if critic else model

    model = nnx.eval_shape(create)
    if critic:
        # Tunix's head names no axes. XLA gives it some at the first update; after a restart it
        # has none again, and sums come in another order.
        model.lm_head.kernel.set_metadata(out_sharding=("fsdp", None))
    nnx.update(model, random_weights(nnx.state(model), mesh, seed))
    return model


def random_weights(shapes, mesh, seed):
    """Weights of these shapes, made by NumPy: to compile their making would take seconds."""
    dice = np.random.default_rng(seed)
    specs = nnx.get_partition_spec(shapes)

    def array(leaf, spec):
        value = dice.normal(size=leaf.shape, scale=(leaf.size / leaf.shape[-1]) ** -0.5)
        value = value.astype(leaf.dtype) if len(leaf.shape) > 1 else np.ones(leaf.shape, leaf.dtype)
        while spec and spec[-1] is None:  # as JAX writes them, or the second step compiles again
            spec = PartitionSpec(*spec[:-1])
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: value[index])

    return jax.tree.map(array, shapes, specs)


def make_cluster(mesh, scenario, rollout_engine=ShardedRollout, metrics=None):
    """A Tunix cluster with plain SGD."""
    beta = scenario.get("beta", 0.0)
    config = rl_cluster_lib.ClusterConfig(
        role_to_mesh=dict.fromkeys(rl_cluster_lib.Role, mesh),
        rollout_engine=rollout_engine,
        training_config=rl_cluster_lib.RLTrainingConfig(
            actor_optimizer=optax.sgd(0.1),
            critic_optimizer=optax.sgd(0.1),
            eval_every_n_steps=scenario.get("eval_every", 1000),
            max_steps=scenario.get("steps", 5),
            mini_batch_size=scenario.get("mini"),
            train_micro_batch_size=scenario.get("train_micro"),
            rollout_micro_batch_size=scenario.get("rollout_micro"),
            compute_logps_micro_batch_size=scenario.get("logps_micro"),
            checkpoint_root_directory=scenario.get("checkpoint"),
            metrics_logging_options=metrics,
            checkpointing_options=ocp.CheckpointManagerOptions(save_interval_steps=2),
        ),
        rollout_config=RolloutConfig(
            max_tokens_to_generate=4,
            max_prompt_length=8,
            kv_cache_size=32,
            temperature=scenario.get("temperature", 1.0),
        ),
    )
    layers = scenario.get("layers", 1)
    return rl_cluster_lib.RLCluster(
        actor=make_model(mesh, layers=layers, vocab_size=scenario.get("vocab", 32)),
        reference=make_model(mesh, seed=scenario.get("reference_seed", 1), layers=layers)
        if beta
        else None,
        critic=make_model(mesh, seed=2, critic=True, layers=layers)
        if scenario.get("algorithm") == "ppo" and not scenario.get("no_critic")
        else None,
        tokenizer=tokenizer(),
        cluster_config=config,
    )


def digest(array_tree):
    """Hash of the whole values: equal if and only if all bytes are."""
    leaves = jax.tree.leaves(array_tree)
    mesh = leaves[0].sharding.mesh
    whole = jax.jit(lambda t: t, out_shardings=NamedSharding(mesh, PartitionSpec()))(leaves)
    hashed = hashlib.sha256()
    for leaf in whole:
        hashed.update(np.asarray(leaf).tobytes())
    return hashed.hexdigest()


def whole(array, mesh):
    """The whole value of a global array."""
    out = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))(array)
    return np.asarray(out)


def lose_server(servers, number, restart_after_s):
    """Kills a server; starts it again after a while, if it is to be."""
    command = psutil.Process(servers[number]).cmdline()
    os.kill(servers[number], signal.SIGKILL)

    def restart():
        started = subprocess.Popen(command)
        servers[number] = started.pid
        atexit.register(started.kill)

    if restart_after_s is not None:
        threading.Timer(restart_after_s, restart).start()


def train(process, endpoint, scenario):
    """Trains for some steps; returns tokens, rewards, advantages, norms and parameters."""

    def own(name, default):
        """This process's value of a setting that differs among processes."""
        return scenario[name][process] if name in scenario else default

    dice = random.Random(process)

    def pause():
        """Holds this process up, if it is one of those to be held up."""
        seconds = dice.uniform(0, scenario["pause_s"]) if process in scenario.get("late", []) else 0
        time.sleep(seconds * dice.choice([0, 0, 1]))
        return seconds

    mesh = make_mesh(scenario.get("mesh", [2, 2]), scenario.get("order"))
    cluster = make_cluster(mesh, scenario)
    cluster.tokenizer.tokenizer.add_tokens(own("new_tokens", []))
    reports, seen = [], {"tokens": [], "advantages": [], "widths": []}

    def on_step(report):
        reports.append(report)
        if report.step == scenario.get("die_at") and process in scenario["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if report.step == scenario.get("lose_server_at") and process == 0:
            lose_server(scenario["servers"], 1, scenario.get("restart_after_s"))
        if report.step == scenario.get("stop_at") and process in scenario["stop"]:
            learner.request_stop("a test")

    client = RewardClient(endpoint, timeout_s=scenario.get("reward_timeout_s", 60))
    submit = client.submit

    def spy(rollouts):
        SENT.append(rollouts.row_ids.tolist())
        pause()
        return submit(rollouts)

    client.submit = spy
    learner = make_learner(
        scenario,
        rl_cluster=cluster,
        reward_fns=in_process() if scenario.get("path") == "allgather" else client,
        reward_path=scenario.get("path", "grpc"),
        score_on=scenario.get("score_on", "all"),
        data=scenario.get("data", "replicated"),
        agreement_timeout_s=scenario.get("agreement_timeout_s", 60),
        on_failed_row=own("policies", scenario.get("on_failed_row", "mask")),
        max_failed_fraction=scenario.get("max_failed_fraction", 0.5),
        on_reward_outage=scenario.get("on_reward_outage", "stop"),
        outage_timeout_s=own("outage_timeouts_s", scenario.get("outage_timeout_s", 300)),
        on_step=on_step,
        drop_long_prompts=scenario.get("drop", False),
        dump_rollouts=Path(scenario["dump"], f"rollouts-{process}.jsonl")
        if "dump" in scenario
        else None,
    )
    process_batches = learner._process_accumulated_batches

    def spy_batches(**kwargs):
        pause()
        examples = process_batches(**kwargs)
        for example in examples:
            seen["tokens"].append(whole(example.completion_ids, mesh).tolist())
            seen["widths"].append(example.prompt_ids.shape[1])
            seen["advantages"].append(whole(example.advantages, mesh).tolist())
        return examples

    learner._process_accumulated_batches = spy_batches
    losses = []
    trainer = cluster.actor_trainer
    write = trainer._write_metrics

    def spy_metrics(buffer):
        norms = buffer.additional_metrics.get("grad_norm", ([],))[0]
        norms = [np.asarray(v).item() for v in norms]
        losses.append({"loss": np.asarray(buffer.loss).item(), "norms": norms})
        write(buffer)

    trainer._write_metrics = spy_metrics
    batch = scenario.get("batch", 8)
    steps = scenario.get("steps", 5)
    sizes = scenario.get("sizes", [batch] * steps)
    batches = []
    fail = "!" if scenario.get("fail") else ""
    for step, size in enumerate(sizes):
        pick = [(sum(sizes[:step]) + i) % len(PROMPTS) for i in range(size)]
        if scenario.get("data") == "local":
            share = batch // scenario["shares"]
            mine = 0 if step in scenario.get("same_at", []) else scenario["share_of"][process]
            less = own("rows_less", 0) + (own("last_less", 0) if step == steps - 1 else 0)
            pick = pick[mine * share : (mine + 1) * share - less]
        batches.append(
            {
                "prompts": np.array([own("prompt_prefix", "") + PROMPTS[i] for i in pick]),
                "answer": np.array(
                    [("!!" if i in scenario.get("never", []) else fail) + ANSWERS[i] for i in pick]
                ),
            }
        )
        if "long" in scenario:
            texts = [
                PROMPTS[i] + "1+" * (4 * (n in scenario["long"]))
                for n, i in enumerate(pick, sum(sizes[:step]))
            ]
            batches[-1]["prompts"] = np.array(texts)
        if own("bad_prompt", None) and step == 1:
            batches[-1]["prompts"] = [BAD_PROMPTS[own("bad_prompt", None)]] * len(pick)
        if scenario.get("values"):
            batches[-1]["value"] = [VALUES[i] for i in pick]
            batches[-1]["want"] = [repr(PLAIN[i]) for i in pick]
        if "late" in scenario:
            batches[-1]["pause_s"] = np.array([pause() / 20 for _ in pick])
    batches = batches[: steps - own("batches_less", 0)]

    def arriving():
        for one in batches:
            pause()
            yield one

    learner.train(arriving(), batches[:1] if scenario.get("eval_every") else None)
    return {
        "tokens": seen["tokens"],
        "advantages": seen["advantages"],
        "widths": seen["widths"],
        "losses": losses,
        "rewards": [r.reward_mean for r in reports],
        "steps": [r.step for r in reports],
        "stopped": learner.stopped,
        "modes": [r.mode for r in reports],
        "failed": [r.rows_failed for r in reports],
        "params": digest(nnx.state(cluster.actor_trainer.model, nnx.Param)),
        "critic": digest(nnx.state(cluster.critic_trainer.model, nnx.Param))
        if hasattr(cluster, "critic_trainer")
        else "",
        "param_sum": sum(
            float(np.abs(whole(x, mesh)).sum())
            for x in jax.tree.leaves(nnx.state(cluster.actor_trainer.model, nnx.Param))
        ),
    }


def reward_step_hlo(process, endpoint, scenario):
    """Shapes of the collectives in the compiled reward step."""
    arrays = RowArrays(make_mesh([2, 2]), ("fsdp",))
    n, functions = 64, 2
    owned = np.zeros(
        (len(arrays.layout.owned_rows(n)), advantage.packed_columns(functions)), np.float32
    )
    packed = arrays.from_owned_rows(owned, n)
    step = advantage.reward_step(arrays.row_sharding, arrays.replicated, 4)
    return {"hlo": step.lower(packed).compile().as_text()}


def stock_rollout(process, endpoint, scenario):
    """What Tunix's own sampler does with sharded prompts, and with prompts of each process."""
    mesh = make_mesh([2, 2])
    model = make_model(mesh)
    tok = tokenizer()
    config = model.config
    sampler = tunix_sampler.Sampler(
        model,
        tok,
        tunix_sampler.CacheConfig(
            cache_size=32,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
        ),
    )
    arrays = RowArrays(mesh, ("fsdp",))
    share = [PROMPTS[process * 2 : process * 2 + 2]][0]
    out = {}
    make_array = jnp.array

    def sharded(values, *args, **kwargs):
        values = np.asarray(values)
        if values.ndim == 2:
            return arrays.from_local_rows(values.astype(np.int32), len(values) * 2)
        return make_array(values, *args, **kwargs)

    with mesh:
        tunix_sampler.jnp.array = sharded
        try:
            sampler(share, 4, max_prompt_length=8, temperature=1.0, top_p=1.0)
            out["sharded_prompts"] = "no error"
        except Exception as error:  # noqa: BLE001
            out["sharded_prompts"] = f"{type(error).__name__}: {error}"
        finally:
            tunix_sampler.jnp.array = make_array
        local = sampler(share, 4, max_prompt_length=8, temperature=0.0)
        out["prompts"] = list(share)
        out["local_prompt_completions"] = local.text
        everyone = sampler(PROMPTS[:4], 4, max_prompt_length=8, temperature=0.0)
        out["right_completions"] = everyone.text[process * 2 : process * 2 + 2]
        rollout = ShardedRollout(
            rollout_actor=model,
            tokenizer=tok,
            mesh=mesh,
            rollout_config=RolloutConfig(max_prompt_length=8, kv_cache_size=32),
        )
        greedy = RolloutConfig(
            max_tokens_to_generate=4,
            max_prompt_length=8,
            kv_cache_size=32,
            temperature=0.0,
            top_p=None,
        )
        out["ours"] = rollout.generate(share, greedy).text
    return out


def agreement(process, endpoint, scenario):
    """Process 1 comes late, then both agree again; also the cost of one exchange."""
    late = Agreement(timeout_s=2)
    error = None
    if process == 1:
        time.sleep(5)
    try:
        late.exchange("a place", {})
    except ProcessesDisagree as caught:
        error = str(caught)
    fresh = Agreement(timeout_s=60)
    values = fresh.exchange("again", {"process": process})
    start = time.perf_counter()
    for _ in range(50):
        fresh.exchange("cost", {"step": 1})
    seconds = (time.perf_counter() - start) / 50
    places = None
    try:
        fresh.exchange(f"place {process}", {})
    except ProcessesDisagree as caught:
        places = str(caught)
    return {"late": error, "values": values, "exchange_ms": seconds * 1e3, "places": places}
