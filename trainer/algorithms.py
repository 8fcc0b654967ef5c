# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tunix's learners, sharded: one class for each algorithm.

Legend: B global rows, R replicas, F reward functions.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tunix.rl.grpo import grpo_learner
from tunix.rl.rl_cluster import Mode

from trainer import advantage
from trainer.learner import ShardedLearner


class ShardedGRPOLearner(ShardedLearner, grpo_learner.GRPOLearner):
    """Tunix's GRPO learner for any number of processes.

    Example:
        >>> learner = ShardedGRPOLearner(  # doctest: +SKIP
        ...     rl_cluster=cluster,  # with rollout_engine=ShardedRollout
        ...     algo_config=GRPOConfig(num_generations=8),
        ...     reward_fns=RewardClient("unix:/tmp/reward.sock"),
        ... )
        >>> learner.train(dataset)  # doctest: +SKIP
    """

    def _make_example(
        self,
        tokens: dict[str, jax.Array],
        ref: jax.Array | None,
        old: jax.Array | None,
        packed: jax.Array,
        mode: Mode,
    ) -> tuple[Any, dict[str, Any]]:
        """Computes group-relative advantages."""
        del mode
        step = advantage.reward_step(
            self._arrays.row_sharding, self._arrays.replicated, self._num_generations()
        )
        _, _, _, advantages, metrics = step(packed)
        example = grpo_learner.TrainExample(
            **tokens, ref_per_token_logps=ref, old_per_token_logps=old, advantages=advantages
        )
        return example, {name: np.asarray(value) for name, value in metrics.items()}
