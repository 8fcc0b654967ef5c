# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A training script as a user of Tunix writes it, started by srun in several processes."""

from __future__ import annotations

import os
import sys

import jax

if __name__ == "__main__":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()

import numpy as np
import optax
from jax.sharding import Mesh
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig

from trainer import RewardClient, ShardedGRPOLearner, ShardedRollout, recipes
from trainer.recipes.tiny_model import make_model


def main(steps: int) -> None:
    """Trains a small model for some steps."""
    recipe = recipes.load("tiny")
    mesh = Mesh(np.array(jax.devices()).reshape(-1, 1), ("fsdp", "tp"))
    cluster = RLCluster(
        actor=make_model(mesh, seed=0),
        tokenizer=recipe.tokenizer(),
        cluster_config=ClusterConfig(
            role_to_mesh=dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), mesh),
            rollout_engine=ShardedRollout,
            training_config=RLTrainingConfig(
                actor_optimizer=optax.adam(1e-3), eval_every_n_steps=1000, max_steps=steps
            ),
            rollout_config=RolloutConfig(
                max_prompt_length=4, max_tokens_to_generate=4, kv_cache_size=8
            ),
        ),
    )
    learner = ShardedGRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(num_generations=recipe.settings.num_generations, beta=0.0),
        reward_fns=RewardClient(os.environ["REWARD_ENDPOINT"]),
        data="replicated",
    )
    learner.train(recipe.batches(steps, seed=0))
    print(f"process {jax.process_index()} of {jax.process_count()} took {steps} steps")


if __name__ == "__main__":
    main(int(sys.argv[1]))
