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
    "overlong_buffer_penalty": 1.0,
    "max_response_length": 4,
}
LEARNERS = {
    "dapo": ShardedDAPOLearner,
    "drgrpo": ShardedDrGRPOLearner,
    "ppo": ShardedPPOLearner,
}


def config_of(scenario):
    """Tunix's config for the algorithm of a scenario."""
    algorithm = scenario.get("algorithm", "grpo")
    beta = scenario.get("beta", 0.0)
    settings = {"num_iterations": scenario.get("iterations", 1)}
    if "reward_manager" in scenario:
        settings["reward_manager"] = scenario["reward_manager"]
    if algorithm == "ppo":
        return PPOConfig(**settings, beta=beta, epsilon_c=2.0)
    settings["num_generations"] = scenario.get("generations", 4)
    if algorithm == "dapo":
        buffer = {**OVERLONG, **scenario.get("overlong", {})}
        return DAPOConfig(**settings, overlong_buffer=buffer)
    if algorithm == "drgrpo":
        return DrGRPOConfig(**settings, beta=beta)
    if algorithm == "gspo-token":
        return GRPOConfig(**settings, beta=beta, loss_algo=algorithm)
    return GRPOConfig(**settings, beta=beta, advantage_estimator=algorithm)


def make_learner(scenario, **arguments):
    """Makes the learner of a scenario; arguments are those that all learners take."""
    learner = LEARNERS.get(scenario.get("algorithm"), ShardedGRPOLearner)
    return learner(algo_config=config_of(scenario), **arguments)
