# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner refuses before anything starts, with the reason."""

from __future__ import annotations

from typing import Any

from tunix.rl.rl_cluster import Mode, Role

from trainer.client import RewardClient
from trainer.global_rollout import GlobalRollout


def check_setup(
    cluster: Any, algo_config: Any, reward_fns: Any, metric_fns: Any, data: str
) -> None:
    """Refuses what can't work, before anything starts.

    Raises:
        ValueError: names the argument and the remedy.
    """
    config = cluster.cluster_config
    if not isinstance(cluster.rollout, GlobalRollout):
        raise ValueError(
            "`rollout_engine` must be ShardedRollout or a LocalRollout in the ClusterConfig."
        )
    if not isinstance(reward_fns, RewardClient):
        raise ValueError(
            f"`reward_fns` must be a RewardClient, got {type(reward_fns).__name__}."
            " Reward functions run in the reward server."
        )
    if metric_fns:
        raise ValueError(
            "`metric_fns` must be empty: they need every completion as text on one process."
            " Return the values from a reward function with weight 0, whose mean is logged."
        )
    if data not in ("local", "replicated"):
        raise ValueError(f"`data` must be 'local' or 'replicated', got {data!r}.")
    if algo_config.advantage_estimator != "grpo":
        raise ValueError(
            f"`advantage_estimator` must be 'grpo', got {algo_config.advantage_estimator!r}."
        )
    if config.role_to_mesh[Role.ACTOR] != config.role_to_mesh[Role.ROLLOUT]:
        raise ValueError("the actor and the rollout must be on one mesh.")
    if config.offload_to_cpu:
        raise ValueError("`offload_to_cpu` must be False with ShardedGRPOLearner.")
    if config.training_config.max_seq_token_per_tpu is not None:
        raise ValueError("`max_seq_token_per_tpu` (sequence packing) must be None.")
    _check_training(cluster)
    check_rollout_configs(cluster)


def _check_training(cluster: Any) -> None:
    """Refuses meshes and limits that Tunix takes and then trips over."""
    config = cluster.cluster_config
    meshes = config.role_to_mesh
    if meshes.get(Role.REFERENCE, meshes[Role.ACTOR]) != meshes[Role.ACTOR]:
        raise ValueError(
            "the actor and the reference must be on one mesh: rows of several processes can't be"
            " moved to another one."
        )
    if config.training_config.max_steps is None:
        raise ValueError(
            "`max_steps` must be set: Tunix compares it with the updates after each step."
        )
    axes = tuple(config.training_config.data_sharding_axis)
    ours = cluster.rollout.arrays.data_axes
    # To Tunix a second name is an axis for the tokens of a row.
    wanted = ours if len(ours) == 1 else (ours,)
    if axes != wanted:
        raise ValueError(
            f"`data_sharding_axis` must be {wanted}, by which the rollout shards rows, got {axes}."
            " For other axes pass"
            " rollout_engine=functools.partial(ShardedRollout, data_sharding_axis=...); several are"
            " a tuple in the tuple here."
        )


def check_rollout_configs(cluster: Any, *, evaluates: bool = False) -> None:
    """Refuses sampling settings that would fail at the first rollout.

    Args:
        cluster: the cluster.
        evaluates: whether there is data to evaluate on.

    Raises:
        ValueError: names the setting.
    """
    configs = cluster.cluster_config.rollout_config
    by_mode = configs if isinstance(configs, dict) else {Mode.TRAIN: configs, Mode.EVAL: configs}
    if evaluates and Mode.EVAL not in by_mode:
        raise ValueError("`rollout_config` must have a config for Mode.EVAL to use `eval_ds`.")
    for config in by_mode.values():
        cluster.rollout.check_config(config)


def local_share(name: str, size: int, held: int, shards: int) -> int:
    """Scales a global batch size to the data shards that a process holds.

    Raises:
        ValueError: names the setting whose rows can't be shared evenly.
    """
    if size * held % shards:
        raise ValueError(
            f"`{name}` must be a multiple of {shards // held} to be shared by the processes,"
            f" got {size}."
        )
    return size * held // shards
