# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tunix's critic-free learners, sharded: one class for each. PPO is in `trainer.ppo`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tunix.rl.grpo import drgrpo_learner, grpo_learner
from tunix.rl.rl_cluster import Mode

from trainer import advantage
from trainer.failures import FailurePolicy
from trainer.learner import Part, ShardedLearner
from trainer.setup_checks import check_estimator


class ShardedGRPOLearner(ShardedLearner, grpo_learner.GRPOLearner):
    """Tunix's GRPO learner for any number of processes.

    `loss_algo="gspo-token"` makes it GSPO, `advantage_estimator` "rloo" or "gdpo" what they say.

    Example:
        >>> learner = ShardedGRPOLearner(  # doctest: +SKIP
        ...     rl_cluster=cluster,  # with rollout_engine=ShardedRollout
        ...     algo_config=GRPOConfig(num_generations=8),
        ...     reward_fns=RewardClient("unix:/tmp/reward.sock"),
        ... )
        >>> learner.train(dataset)  # doctest: +SKIP
    """

    def _check_algorithm(self, cluster: Any, algo_config: Any, policy: FailurePolicy) -> None:
        """Refuses estimators that know no rows without a reward."""
        super()._check_algorithm(cluster, algo_config, policy)
        check_estimator(algo_config.advantage_estimator, policy)

    def _make_examples(self, parts: list[Part], mode: Mode) -> list[tuple[Any, dict[str, Any]]]:
        """Computes advantages relative to the group."""
        del mode
        step = advantage.reward_step(
            self._arrays.row_sharding,
            self._arrays.replicated,
            self._num_generations(),
            self.algo_config.advantage_estimator,
            self._rewards.weights,
        )
        out = step(*(part.packed for part in parts))
        return [
            (
                grpo_learner.TrainExample(**part.arrays, advantages=advantages),
                jax.tree.map(np.asarray, metrics),
            )
            for part, advantages, metrics in zip(
                parts, out["advantages"], out["metrics"], strict=True
            )
        ]


class ShardedDrGRPOLearner(ShardedGRPOLearner, drgrpo_learner.DrGRPOLearner):
    """Tunix's Dr. GRPO learner for any number of processes, for a `DrGRPOConfig`."""
