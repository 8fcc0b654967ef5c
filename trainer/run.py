# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A `grpo-train` run: mesh, model, learner, training, and what is written about it."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo.dapo_learner import DAPOConfig
from tunix.rl.grpo.drgrpo_learner import DrGRPOConfig
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix.sft import hooks

from trainer import peers
from trainer.agreement import Agreement, Attempt
from trainer.algorithms import ShardedDAPOLearner, ShardedDrGRPOLearner, ShardedGRPOLearner
from trainer.client import RewardClient
from trainer.json_lines import write_json
from trainer.progress import Progress
from trainer.recipes.recipe import RecipeError
from trainer.resume import cannot_restore, make_folder
from trainer.rollout import ShardedRollout
from trainer.run_config import ConfigError
from trainer.run_settings import check_settings, versions

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


class _Stopper:
    """Turns SIGTERM into a stop of all processes before their next step; a second one ends."""

    def __init__(self) -> None:
        self.learner: ShardedGRPOLearner | None = None
        self._asked = False
        # After `jax.distributed.initialize`, which takes the signal for itself.
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._asked or self.learner is None:
            os._exit(128 + number)
        self._asked = True
        self.learner.request_stop("SIGTERM")


def make_cluster(recipe: Recipe, mesh: Mesh, config: RunConfig) -> rl_cluster_lib.RLCluster:
    """Makes Tunix's cluster for a recipe: all roles on one mesh, rollouts sharded."""
    steps = config.steps or recipe.settings.steps
    settings, folder = recipe.settings, config.checkpoint_dir
    tokenizer = recipe.tokenizer()
    cluster_config = rl_cluster_lib.ClusterConfig(
        role_to_mesh=dict.fromkeys(
            (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT),
            mesh,
        ),
        rollout_engine=ShardedRollout,
        training_config=rl_cluster_lib.RLTrainingConfig(
            actor_optimizer=optax.adam(settings.learning_rate),
            eval_every_n_steps=steps + 1,
            max_steps=steps,
            checkpoint_root_directory=str(folder.resolve()) if folder else None,
            checkpointing_options=ocp.CheckpointManagerOptions(
                save_interval_steps=config.checkpoint_every, max_to_keep=2
            ),
        ),
        rollout_config=_rollout_config(settings, config.seed),
    )
    actor = recipe.model(mesh, seed=config.seed)
    try:
        cluster = rl_cluster_lib.RLCluster(
            actor=actor, tokenizer=tokenizer, cluster_config=cluster_config
        )
    except Exception as error:
        if folder is None or not (text := cannot_restore(folder, error)):
            raise
        raise ConfigError(text) from error
    # The cluster's copy of the config stops training; the trainer's only draws a second bar.
    cluster.actor_trainer.config.max_steps = None
    return cluster


def choose_algorithm(
    name: str, num_generations: int
) -> tuple[type[ShardedGRPOLearner], GRPOConfig]:
    """Chooses the learner of an algorithm and its config, without a reference model.

    Args:
        name: one of `trainer.run_config.ALGORITHMS`.
        num_generations: completions of each prompt.
    """
    if name == "dapo":
        # The rewards of recipes have no function for the buffer.
        dapo = DAPOConfig(num_generations=num_generations, overlong_buffer=None)
        return ShardedDAPOLearner, dapo
    if name == "drgrpo":
        return ShardedDrGRPOLearner, DrGRPOConfig(num_generations=num_generations, beta=0.0)
    choice = {"loss_algo": name} if name == "gspo-token" else {"advantage_estimator": name}
    return ShardedGRPOLearner, GRPOConfig(num_generations=num_generations, beta=0.0, **choice)


def _rollout_config(settings: Settings, seed: int) -> RolloutConfig:
    return RolloutConfig(
        max_prompt_length=settings.max_prompt_length,
        max_tokens_to_generate=settings.max_tokens_to_generate,
        kv_cache_size=settings.max_prompt_length + settings.max_tokens_to_generate,
        temperature=settings.temperature,
        top_p=1.0,
        seed=seed,
    )


def run(config: RunConfig) -> str:
    """Trains and writes metrics.jsonl and train.json in `config.out`, on process 0.

    Returns:
        Why the run ended before its last step and where it can go on, or "".

    Raises:
        ConfigError: mesh, peers, recipe or folder; the message says what to change.
        RewardError: the rewards could not be had.
    """
    peers.connect(config)
    stopper = _Stopper()
    agreement = Agreement(timeout_s=config.agreement_timeout)
    with agreement.guarded(lambda: "grpo-train"):
        settings = {**config.shared(), **versions()}
        agreement.exchange("start of grpo-train", settings, check_settings)
        if config.checkpoint_dir is not None:
            made = Attempt(functools.partial(_make_folder, config.checkpoint_dir))
            agreement.all_ok("the folder of the checkpoints", made.error)
        return _run(config, stopper)


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError(str(error)) from error


def _run(config: RunConfig, stopper: _Stopper) -> str:
    """Trains, after the processes have found each other."""
    recipe = config.load_recipe()
    steps = config.steps or recipe.settings.steps
    first = jax.process_index() == 0
    mesh = peers.make_mesh(config.mesh)
    try:
        if first or config.dump_rollouts:
            config.out.mkdir(parents=True, exist_ok=True)
        recipe.prepare()
        batches = recipe.batches(steps, seed=config.seed)
        cluster = make_cluster(recipe, mesh, config)
    except (OSError, RecipeError) as error:
        raise ConfigError(str(error)) from error
    start = time.monotonic()
    # Metrics of process 0 alone are shown and kept.
    folder = config.out if first else None
    done = cluster.actor_trainer.train_steps
    with Progress(
        steps=steps,
        folder=folder,
        show=first,
        show_samples=recipe.settings.show_samples,
        show_samples_every=recipe.settings.show_samples_every,
        done=done,
    ) as progress:
        make_learner, algo_config = choose_algorithm(
            config.algorithm, recipe.settings.num_generations
        )
        learner = make_learner(
            rl_cluster=cluster,
            algo_config=algo_config,
            reward_fns=RewardClient(
                config.reward_endpoint,
                timeout_s=config.reward_timeout,
                connect_timeout_s=config.reward_start_timeout,
                **config.reward_credentials,
            ),
            data="replicated",
            reward_path=config.reward_path,
            agreement_timeout_s=config.agreement_timeout,
            on_failed_row=config.on_failed_row,
            max_failed_fraction=config.max_failed_fraction,
            on_reward_outage=config.on_reward_outage,
            outage_timeout_s=config.outage_timeout,
            on_step=progress.on_step,
            dump_rollouts=config.out / f"rollouts-{jax.process_index()}.jsonl"
            if config.dump_rollouts
            else None,
        )
        stopper.learner = learner
        cluster.actor_trainer.with_training_hooks(_LossHook(progress))
        if done:
            _say(first, f"resumed after step {done} from {config.checkpoint_dir}")
        else:
            progress.accuracy_before = recipe.accuracy(cluster.rollout, seed=config.seed)
            _say_share(first, "accuracy before", progress.accuracy_before)
        progress.start_clock()
        learner.train(batches)
        if learner.stopped:
            return _stopped(config, learner.stopped, cluster.actor_trainer.train_steps)
        after = recipe.accuracy(cluster.rollout, seed=config.seed)
    _say_share(first, "accuracy after", after)
    if first:
        write_json(
            config.out / "train.json",
            {
                "recipe": recipe.name,
                "algorithm": config.algorithm,
                "processes": jax.process_count(),
                "mesh": dict(mesh.shape),
                "seed": config.seed,
                "steps": progress.done,
                "rows": progress.rows,
                "rows_failed": progress.rows_failed,
                "reward_first": progress.reward_first,
                "reward_last": progress.reward_last,
                "accuracy_before": progress.accuracy_before,
                "accuracy_after": after,
                "reward_wait_s": progress.reward_wait_s,
                "wall_s": time.monotonic() - start,
            },
        )
    return ""


def _stopped(config: RunConfig, reason: str, updates: int) -> str:
    if config.checkpoint_dir is None:
        return f"stopped by {reason} after step {updates}; pass --checkpoint-dir to go on later"
    return f"stopped by {reason} after step {updates}; the same command goes on from there"


def _say(first: bool, text: str) -> None:
    if first:
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _say_share(first: bool, what: str, share: float | None) -> None:
    if share is not None:
        _say(first, f"{what}: {share:.3f}")
