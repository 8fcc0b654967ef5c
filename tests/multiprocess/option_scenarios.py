# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Training with the options of Tunix, and with an engine that knows only its process."""

from __future__ import annotations

import functools
import hashlib

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh
from tunix.perf.metrics import PerfMetricsConfig
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rl_cluster import ClusterConfig, Mode, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix.sft.metrics_logger import MetricsLoggerOptions
from tunix.sft.profiler import ProfilerOptions

from tests.multiprocess.scenarios import (
    ANSWERS,
    PROMPTS,
    digest,
    make_model,
    tokenizer,
    whole,
)
from trainer import LocalRollout, RewardClient, ShardedGRPOLearner, ShardedRollout
from trainer.recipes import lora


class HashEngine:
    """Makes completions of a prompt, a seed and all weights; fails in one of several ways."""

    def __init__(self, fault=""):
        self.fault = fault
        self.weights = {}
        self.updates = []
        self.rows = 0

    def update_params(self, weights):
        """Remembers the digest of each weight."""
        if self.fault == "weights":
            next(weights)
            raise OSError("no memory for weights")
        taken = {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in weights}
        self.weights |= taken
        self.updates.append(len(taken))

    def generate(self, prompts, seeds, config):
        """Ids that depend on everything; every second row ends early."""
        if self.fault == "raises":
            raise OSError("the engine is broken")
        self.rows += len(prompts)
        length = config.max_tokens_to_generate
        rows = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            text = f"{prompt} {seed} {sorted(self.weights.items())}"
            drawn = hashlib.sha256(text.encode()).digest()
            size = drawn[0] % length + 1 if drawn[1] % 2 else length
            ids = [2 + value % 30 for value in drawn[2 : 2 + size]]
            rows.append([*ids[:-1], 1] if size < length else ids)
        change = {
            "few": rows.pop,
            "long": lambda: rows[1].extend([5] * length),
            "range": lambda: rows.__setitem__(1, [2] * (length - 1) + [32]),
            "no end": lambda: rows.__setitem__(1, [2]),
        }
        change.get(self.fault, lambda: None)()
        return rows


def make_cluster(scenario, engine):
    """A cluster with the options of the scenario."""
    rollout = {"max_tokens_to_generate": 4, "max_prompt_length": 8, "kv_cache_size": 32}
    rollout |= {"temperature": 1.0, **scenario.get("rollout", {})}
    configs = RolloutConfig(**rollout)
    if "eval_rollout" in scenario:
        other = RolloutConfig(**rollout | scenario["eval_rollout"])
        configs = {Mode.TRAIN: configs, Mode.EVAL: other}
    devices = np.array(jax.devices())[scenario.get("order", [0, 1, 2, 3])]
    axes = tuple(scenario.get("axes", ["fsdp", "tp"]))
    mesh = Mesh(devices.reshape(scenario.get("mesh", [2, 2])), axes)
    model = make_model(mesh)
    actor = lora.add(model, mesh, rank=2, seed=3) if scenario.get("lora") else model
    rows = scenario.get("row_axes", ["fsdp"])
    logs = scenario.get("logs")
    return RLCluster(
        actor=actor,
        reference=model if scenario.get("beta") else None,
        tokenizer=tokenizer(),
        perf_config=PerfMetricsConfig(custom_export_fn=lambda _: {}) if logs else None,
        cluster_config=ClusterConfig(
            role_to_mesh=dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), mesh),
            rollout_engine=functools.partial(LocalRollout, engine=engine, timeout_s=60)
            if engine
            else functools.partial(ShardedRollout, data_sharding_axis=tuple(rows)),
            training_config=RLTrainingConfig(
                actor_optimizer=optax.sgd(0.1),
                eval_every_n_steps=scenario.get("eval_every", 1000),
                max_steps=scenario.get("max_steps", 10),
                data_sharding_axis=tuple(rows) if len(rows) == 1 else (tuple(rows),),
                checkpoint_root_directory=scenario.get("checkpoint"),
                checkpointing_options=ocp.CheckpointManagerOptions(save_interval_steps=2),
                metrics_logging_options=MetricsLoggerOptions(f"{logs}/metrics") if logs else None,
                profiler_options=ProfilerOptions(f"{logs}/profile", 0, 1) if logs else None,
                **scenario.get("training", {}),
            ),
            rollout_config=configs,
        ),
    )


def train(process, endpoint, scenario):
    """Trains for some steps; returns tokens, rewards, advantages, norms and parameters."""
    faulty = scenario.get("faulty", 1) == process
    engine = HashEngine(scenario["engine"] if faulty else "") if "engine" in scenario else None
    cluster = make_cluster(scenario, engine)
    mesh, model = cluster.cluster_config.role_to_mesh[Role.ACTOR], cluster.actor_trainer.model
    before = {
        "frozen": digest(nnx.state(model, frozen)),
        "params": digest(nnx.state(model, nnx.Param)),
    }
    seen = {"tokens": [], "advantages": [], "rewards": [], "lengths": [], "modes": []}
    old_differs = []

    def on_step(report):
        seen["rewards"].append(report.reward_mean)
        seen["lengths"].append(report.completion_length_mean)
        seen["modes"].append(report.mode)
        if report.step == scenario.get("stop_at"):
            learner.request_stop("a test")

    learner = ShardedGRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(
            num_generations=4,
            num_iterations=scenario.get("iterations", 1),
            beta=scenario.get("beta", 0.0),
        ),
        reward_fns=RewardClient(endpoint, timeout_s=60),
        data_shuffle_seed=scenario.get("seeds", [None] * 2)[process],
        data="replicated",
        agreement_timeout_s=60,
        on_step=on_step,
    )
    process_batches = learner._process_accumulated_batches

    def spy_batches(**kwargs):
        examples = process_batches(**kwargs)
        for example in examples:
            seen["tokens"].append(whole(example.completion_ids, mesh).tolist())
            seen["advantages"].append(whole(example.advantages, mesh).tolist())
            if example.old_per_token_logps is not None and cluster.global_steps == 0:
                prompts, completions = example.prompt_ids, example.completion_ids
                now = cluster.get_actor_per_token_logps(prompts, completions, 0, 1)
                old = whole(example.old_per_token_logps, mesh)
                mask = whole(example.completion_mask, mesh)
                old_differs.append(float((np.abs(whole(now, mesh) - old) * mask).max()))
        return examples

    learner._process_accumulated_batches = spy_batches
    losses = []
    write = cluster.actor_trainer._write_metrics

    def spy_metrics(buffer):
        norms = buffer.additional_metrics.get("grad_norm", ([],))[0]
        losses.append([np.asarray(buffer.loss).item(), *(np.asarray(v).item() for v in norms)])
        write(buffer)

    cluster.actor_trainer._write_metrics = spy_metrics
    batches = []
    for step in range(scenario.get("steps", 2)):
        pick = [(step * 8 + i) % len(PROMPTS) for i in range(8)]
        batches.append(
            {
                "prompts": np.array([PROMPTS[i] for i in pick]),
                "answer": np.array([ANSWERS[i] for i in pick]),
            }
        )
    learner.train(batches, batches[:1] if scenario.get("eval_every") else None)
    return {
        **seen,
        "losses": losses,
        "old_differs": old_differs,
        "syncs": learner.should_sync_weights,
        "global_steps": cluster.global_steps,
        "engine_updates": engine.updates if engine else [],
        "engine_rows": engine.rows if engine else 0,
        "logs": scenario.get("logs"),
        "before": before,
        "frozen": digest(nnx.state(model, frozen)),
        "params": digest(nnx.state(model, nnx.Param)),
        "param_sum": sum(
            float(np.abs(whole(x, mesh)).sum())
            for x in jax.tree.leaves(nnx.state(model, nnx.Param))
        ),
    }


def frozen(_path, value):
    """Selects parameters that LoRA leaves alone."""
    return isinstance(value, nnx.Param) and not isinstance(value, nnx.LoRAParam)
