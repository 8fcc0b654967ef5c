# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tunix's PPO learner, sharded: values of a critic, and advantages of each token on the device.

Legend: B global rows, T completion tokens.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from tunix.rl import algo_core, common, function_registry
from tunix.rl.ppo import ppo_learner

from trainer import advantage
from trainer.failures import FailurePolicy
from trainer.learner import Part, ShardedLearner
from trainer.metrics import Metrics, spread_metrics
from trainer.resume import free_restored_scalars, save_in_turn
from trainer.rollout import RolloutArrays
from trainer.setup_checks import check_critic

logger = logging.getLogger(__name__)


class ShardedPPOLearner(ShardedLearner, ppo_learner.PPOLearner):
    """Tunix's PPO learner for any number of processes, for a `PPOConfig`.

    The cluster needs a critic on the actor's mesh. A row without a reward is masked as a whole: it
    leaves whitening, policy loss and value loss. Rewards are float32; Tunix 0.1.7 puts them into an
    array of int32, which drops their fractions.
    """

    _length_prefix: ClassVar[str] = "generation/completions"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what `ShardedLearner` takes.

        Raises:
            ValueError: as there, or the cluster has no fitting critic.
        """
        super().__init__(*args, **kwargs)
        actor, critic = self.rl_cluster.actor_trainer, self.rl_cluster.critic_trainer
        free_restored_scalars(critic.optimizer)
        save_in_turn(actor, critic)
        if critic.train_steps != actor.train_steps:
            # Tunix saves one after the other: a run that is killed in between has only the first.
            logger.warning(
                "checkpoints of different updates actor=%d critic=%d",
                actor.train_steps,
                critic.train_steps,
            )

    def _check_algorithm(self, cluster: Any, algo_config: Any, policy: FailurePolicy) -> None:
        """Refuses clusters without a critic, or with a reward model."""
        super()._check_algorithm(cluster, algo_config, policy)
        check_critic(cluster)

    def _wants_old(self) -> bool:
        """Always, as in Tunix."""
        return True

    def _infer(self, rollouts: RolloutArrays, n: int) -> dict[str, jax.Array | None]:
        """Adds the critic's values to the log-probabilities."""
        runs = self._sampling.runs(self._compute_logps_micro_batch_size, n)
        return super()._infer(rollouts, n) | {"old_values": self._sampling.values(rollouts, runs)}

    def _make_examples(self, parts: list[Part]) -> tuple[list[Any], dict[str, Any]]:
        """Computes advantages and returns of each token, whitened over all parts as in Tunix."""
        arrays = self._arrays
        step = advantage.reward_step(
            arrays.row_sharding, arrays.replicated, 1, None, self._rewards.weights
        )
        rewards = step(*(part.packed for part in parts))
        names = ("completion_mask", "ref_per_token_logps", "old_per_token_logps", "old_values")
        whole = arrays.join_each_shard(
            [
                {name: part.arrays[name] for name in names} | {"totals": totals, "valid": valid}
                for part, totals, valid in zip(
                    parts, rewards["totals"], rewards["valid"], strict=True
                )
            ]
        )
        estimates, spreads = self._estimate(whole)
        slices = arrays.layout.merged_parts([part.packed.shape[1] for part in parts])
        examples = [
            ppo_learner.TrainExample(**(part.arrays | arrays.part_of_each_shard(estimates, rows)))
            for part, rows in zip(parts, slices, strict=True)
        ]
        return examples, {"packed": rewards["packed"], "spreads": spreads}

    def _algorithm_metrics(self, measured: dict[str, Any]) -> Metrics:
        """Adds Tunix's metrics of tokens."""
        return spread_metrics(measured["spreads"])

    @functools.cached_property
    def _estimate(self) -> Any:
        return jax.jit(
            functools.partial(token_advantages, config=self.algo_config),
            out_shardings=(self._arrays.row_sharding, self._arrays.replicated),
        )


def token_advantages(
    rows: dict[str, Any], config: ppo_learner.PPOConfig
) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """Computes advantages and returns of tokens as Tunix's PPO learner does.

    The reward stands at the last token, the KL penalty at each, and Tunix's estimator does the
    rest.

    Args:
        rows: `totals` and `valid` [B]; `completion_mask`, `old_values`, `old_per_token_logps` and,
            with a beta, `ref_per_token_logps`, [B, T].
        config: of the algorithm.

    Returns:
        Fields of the train example, [B, T], zero in rows that are not valid; and what Tunix
        measures, by name: number and sum of the values, and mostly their max and min.
    """
    valid: Bool[Array, " B"] = rows["valid"]
    mask: Bool[Array, "B T"] = rows["completion_mask"] & valid[:, None]
    values: Float[Array, "B T"] = rows["old_values"] * mask
    last = jnp.maximum(mask.sum(axis=1) - 1, 0)
    is_last = mask & (jnp.arange(mask.shape[1]) == last[:, None])
    rewards = jnp.where(is_last, rows["totals"][:, None], 0.0)
    spreads = {}
    if config.beta:
        kl = mask * common.compute_kl_divergence(
            rows["old_per_token_logps"],
            rows["ref_per_token_logps"],
            method=config.kl_method,
            clamp_value=config.kl_clamp_value,
        )
        rewards = rewards - config.beta * kl
        of_row = algo_core.masked_mean(kl, mask, axis=-1)
        spreads["rewards/reward_kl_penalty"] = {"n": valid.sum(), "sum": of_row.sum()}
    estimator = function_registry.get_advantage_estimator(config.advantage_estimator)
    advantages, returns = estimator(
        rewards=rewards,
        values=values,
        completion_mask=mask,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    # The variance of a single token is NaN in Tunix.
    advantages = jnp.where(mask & (mask.sum() >= 2), advantages, 0.0)
    returns = jnp.where(mask, returns, 0.0)
    spreads |= {
        "rewards/reward": _spread(rewards.sum(axis=-1), valid),
        "advantages": _spread(advantages, mask),
        "advantages/returns": _spread(returns, mask),
        "advantages/old_values": _spread(values, mask),
    }
    example = {
        "completion_mask": mask,
        "advantages": advantages,
        "returns": returns,
        "old_values": values,
    }
    return example, spreads


def _spread(x: Array, mask: Array) -> dict[str, Array]:
    return {
        "n": mask.sum(),
        "sum": jnp.where(mask, x, 0.0).sum(),
        "max": jnp.where(mask, x, -jnp.inf).max(),
        "min": jnp.where(mask, x, jnp.inf).min(),
    }
