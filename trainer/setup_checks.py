# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner refuses before anything starts, with the reason."""

from __future__ import annotations

from typing import Any

from tunix.rl.rl_cluster import Role

from trainer.rollout import ShardedRollout


def check_setup(cluster: Any, algo_config: Any, metric_fns: Any, data: str) -> None:
    """Refuses what can't work, before anything starts.

    Raises:
        ValueError: names the argument and the remedy.
    """
    config = cluster.cluster_config
    if not isinstance(cluster.rollout, ShardedRollout):
        raise ValueError("`rollout_engine` must be ShardedRollout in the ClusterConfig.")
    if metric_fns:
        raise ValueError(
            "`metric_fns` must be empty: they need every completion as text on one process."
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
    axes = tuple(config.training_config.data_sharding_axis)
    if axes != cluster.rollout.arrays.data_axes:
        raise ValueError(
            f"`data_sharding_axis` must be {cluster.rollout.arrays.data_axes} as in the rollout,"
            f" got {axes}. Pass rollout_engine=functools.partial(ShardedRollout,"
            f" data_sharding_axis={axes})."
        )


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
