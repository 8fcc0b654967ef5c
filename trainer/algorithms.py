# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tunix's critic-free learners, sharded: one class for each. PPO is in `trainer.ppo`."""

from __future__ import annotations

import functools
import logging
from typing import Any

import jax
from tunix.rl.grpo import dapo_learner, drgrpo_learner, grpo_learner

from trainer import advantage
from trainer.failures import FailurePolicy
from trainer.learner import Part, ShardedLearner
from trainer.metrics import Metrics, group_metrics
from trainer.overlong import check_overlong
from trainer.setup_checks import check_estimator

logger = logging.getLogger(__name__)


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

    def _make_examples(self, parts: list[Part]) -> tuple[list[Any], dict[str, Any]]:
        """Computes advantages relative to the group; rows that don't count have empty masks."""
        step = advantage.reward_step(
            self._arrays.row_sharding,
            self._arrays.replicated,
            self._num_generations(),
            self.algo_config.advantage_estimator,
            self._rewards.weights,
        )
        out = step(*(part.packed for part in parts))
        examples = [
            grpo_learner.TrainExample(
                **part.arrays
                | {"completion_mask": self._mask_rows(part.arrays["completion_mask"], valid)},
                advantages=advantages,
            )
            for part, valid, advantages in zip(parts, out["valid"], out["advantages"], strict=True)
        ]
        return examples, {"packed": out["packed"], "advantages": out["all_advantages"]}

    @functools.cached_property
    def _mask_rows(self) -> Any:
        # Tunix compares specs by equality: left to the compiler it may be another one.
        return jax.jit(advantage.mask_rows, out_shardings=self._arrays.row_sharding)

    def _algorithm_metrics(self, measured: dict[str, Any]) -> Metrics:
        """Adds the share of groups that teach nothing."""
        return group_metrics(measured["advantages"], self._num_generations())


class ShardedDrGRPOLearner(ShardedGRPOLearner, drgrpo_learner.DrGRPOLearner):
    """Tunix's Dr. GRPO learner for any number of processes, for a `DrGRPOConfig`."""


class ShardedDAPOLearner(ShardedGRPOLearner, dapo_learner.DAPOLearner):
    """Tunix's DAPO learner for any number of processes, for a `DAPOConfig`.

    The function that an enabled `overlong_buffer` stands for must be among those of the reward
    server; the error says how to add it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what `ShardedLearner` takes.

        Raises:
            ValueError: as there, or the server has no function for the `overlong_buffer`.
        """
        super().__init__(*args, **kwargs)
        check_overlong(
            self.algo_config.overlong_buffer,
            names=self._rewards.names,
            weights=self._rewards.weights,
            settings=self._rewards.settings,
        )
        if self.algo_config.dynamic_sampling:
            logger.warning("dynamic_sampling has no effect: Tunix 0.1.7 accepts and ignores it")
