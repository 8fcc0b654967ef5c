# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The learner of a scenario: its class and its config by the name of the algorithm."""

from __future__ import annotations

from tunix.rl.grpo.dapo_learner import DAPOConfig
from tunix.rl.grpo.drgrpo_learner import DrGRPOConfig
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.ppo.ppo_learner import PPOConfig

from trainer import (
    ShardedDAPOLearner,
    ShardedDrGRPOLearner,
    ShardedGRPOLearner,
    ShardedPPOLearner,
)

OVERLONG = {
    "enable": True,
    "overlong_buffer_length": 2,
    "overlong_buffer_penalty": 0.5,
    "max_response_length": 4,
}


def make_learner(scenario, **arguments):
    """Makes the learner of a scenario; arguments are those that all learners take."""
    algorithm = scenario.get("algorithm", "grpo")
    settings = {
        "num_generations": scenario.get("generations", 4),
        "num_iterations": scenario.get("iterations", 1),
    }
    beta = scenario.get("beta", 0.0)
    if algorithm == "ppo":
        config = PPOConfig(num_iterations=settings["num_iterations"], beta=beta, epsilon_c=2.0)
        return ShardedPPOLearner(algo_config=config, **arguments)
    if algorithm == "dapo":
        buffer = {**OVERLONG, **scenario.get("overlong", {})}
        return ShardedDAPOLearner(
            algo_config=DAPOConfig(**settings, overlong_buffer=buffer), **arguments
        )
    if algorithm == "drgrpo":
        return ShardedDrGRPOLearner(algo_config=DrGRPOConfig(**settings, beta=beta), **arguments)
    if algorithm == "gspo-token":
        config = GRPOConfig(**settings, beta=beta, loss_algo=algorithm)
    else:
        config = GRPOConfig(**settings, beta=beta, advantage_estimator=algorithm)
    return ShardedGRPOLearner(algo_config=config, **arguments)
