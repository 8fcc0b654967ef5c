# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A `grpo-train` run: mesh, model, learner, training, and what is written about it."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix.sft import hooks

from trainer import peers, recipes
from trainer.client import RewardClient
from trainer.learner import ShardedGRPOLearner
from trainer.progress import Progress
from trainer.recipes.recipe import RecipeError
from trainer.rollout import ShardedRollout
from trainer.run_config import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from jax.sharding import Mesh

    from trainer.recipes.recipe import Recipe, Settings
    from trainer.run_config import RunConfig


class _LossHook(hooks.TrainingHooks):
    """Hands the loss of each update to the progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_train_step_end(self, train_ctx: Any, train_step: int, train_loss: Any) -> None:
        """Takes the loss, a scalar that every device holds."""
        del train_ctx, train_step
        self._progress.on_loss(float(np.asarray(train_loss)))

    def on_train_start(self, train_ctx: Any) -> None:
        """Does nothing."""

    def on_train_end(self, train_ctx: Any) -> None:
        """Does nothing."""

    def on_train_step_start(self, train_ctx: Any) -> None:
        """Does nothing."""

    def on_eval_step_start(self, train_ctx: Any) -> None:
        """Does nothing."""

    def on_eval_step_end(self, train_ctx: Any, eval_loss: Any) -> None:
        """Does nothing."""


def make_cluster(recipe: Recipe, mesh: Mesh, *, steps: int, seed: int) -> rl_cluster_lib.RLCluster:
    """Makes Tunix's cluster for a recipe: all roles on one mesh, rollouts sharded."""
    settings = recipe.settings
    tokenizer = recipe.tokenizer()
    config = rl_cluster_lib.ClusterConfig(
        role_to_mesh=dict.fromkeys(
            (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT),
            mesh,
        ),
        rollout_engine=ShardedRollout,
        training_config=rl_cluster_lib.RLTrainingConfig(
            actor_optimizer=optax.adam(settings.learning_rate),
            eval_every_n_steps=steps + 1,
            max_steps=steps,
        ),
        rollout_config=_rollout_config(settings, seed),
    )
    cluster = rl_cluster_lib.RLCluster(
        actor=recipe.model(mesh, seed=seed), tokenizer=tokenizer, cluster_config=config
    )
    # The cluster's copy of the config stops training; the trainer's only draws a second bar.
    cluster.actor_trainer.config.max_steps = None
    return cluster


def _rollout_config(settings: Settings, seed: int) -> RolloutConfig:
    return RolloutConfig(
        max_prompt_length=settings.max_prompt_length,
        max_tokens_to_generate=settings.max_tokens_to_generate,
        kv_cache_size=settings.max_prompt_length + settings.max_tokens_to_generate,
        temperature=settings.temperature,
        top_p=1.0,
        seed=seed,
    )


def run(config: RunConfig) -> None:
    """Trains and writes metrics.jsonl and train.json in `config.out`, on process 0.

    Raises:
        ConfigError: mesh, peers, recipe or folder; the message says what to change.
        RewardError: the rewards could not be had.
    """
    recipe = recipes.load(config.recipe)
    steps = config.steps or recipe.settings.steps
    peers.connect(config)
    first = jax.process_index() == 0
    mesh = peers.make_mesh(config.mesh)
    try:
        if first:
            config.out.mkdir(parents=True, exist_ok=True)
        recipe.prepare()
        cluster = make_cluster(recipe, mesh, steps=steps, seed=config.seed)
    except (OSError, RecipeError) as error:
        raise ConfigError(str(error)) from error
    start = time.monotonic()
    metrics = config.out / "metrics.jsonl" if first else None
    samples = recipe.settings.show_samples
    with Progress(steps=steps, file=metrics, show=first, show_samples=samples) as progress:
        learner = ShardedGRPOLearner(
            rl_cluster=cluster,
            algo_config=GRPOConfig(num_generations=recipe.settings.num_generations, beta=0.0),
            reward_fns=RewardClient(config.reward_endpoint, **config.reward_credentials),
            data="replicated",
            agreement_timeout_s=config.agreement_timeout,
            on_step=progress.on_step,
        )
        cluster.actor_trainer.with_training_hooks(_LossHook(progress))
        before = recipe.accuracy(cluster.rollout, seed=config.seed)
        _say(first, "accuracy before", before)
        progress.start_clock()
        learner.train(recipe.batches(steps, seed=config.seed))
        after = recipe.accuracy(cluster.rollout, seed=config.seed)
    _say(first, "accuracy after", after)
    if first:
        _write(
            config.out / "train.json",
            {
                "recipe": recipe.name,
                "processes": jax.process_count(),
                "mesh": dict(mesh.shape),
                "seed": config.seed,
                "steps": len(progress.rewards),
                "rows": progress.rows,
                "rows_failed": progress.rows_failed,
                "reward_first": progress.reward_first,
                "reward_last": progress.reward_last,
                "accuracy_before": before,
                "accuracy_after": after,
                "reward_wait_s": progress.reward_wait_s,
                "wall_s": time.monotonic() - start,
            },
        )


def _say(first: bool, what: str, share: float | None) -> None:
    if first and share is not None:
        print(f"{what}: {share:.3f}", file=sys.stderr, flush=True)  # noqa: T201


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
