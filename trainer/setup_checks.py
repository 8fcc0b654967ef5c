# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner refuses before anything starts, with the reason."""

from __future__ import annotations

import logging
from typing import Any

import jax
from tunix.rl import function_registry
from tunix.rl.rl_cluster import Mode, Role

from trainer import estimators
from trainer.decode import vocabulary
from trainer.estimators import ESTIMATORS
from trainer.failures import FailurePolicy
from trainer.global_rollout import GlobalRollout
from trainer.prompt_share import PromptShare

logger = logging.getLogger(__name__)


def check_setup(cluster: Any, algo_config: Any, metric_fns: Any, data: str) -> None:
    """Refuses what can't work, before anything starts.

    Raises:
        ValueError: names the argument and the remedy.
    """
    config = cluster.cluster_config
    if not isinstance(cluster.rollout, GlobalRollout):
        raise ValueError(
            "`rollout_engine` must be ShardedRollout or a LocalRollout in the ClusterConfig."
        )
    if metric_fns:
        raise ValueError(
            "`metric_fns` must be empty: they need every completion as text on one process."
            " Return the values from a reward function with weight 0, whose mean is logged."
        )
    if data not in ("local", "replicated"):
        raise ValueError(f"`data` must be 'local' or 'replicated', got {data!r}.")
    if algo_config.reward_manager != "sequence-level":
        raise ValueError(
            f"`reward_manager` must be 'sequence-level', got {algo_config.reward_manager!r}."
            " The reward server takes its place."
        )
    if config.role_to_mesh[Role.ACTOR] != config.role_to_mesh[Role.ROLLOUT]:
        raise ValueError("the actor and the rollout must be on one mesh.")
    if config.offload_to_cpu:
        raise ValueError("`offload_to_cpu` must be False with a sharded learner.")
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


def check_estimator(name: str, policy: FailurePolicy) -> None:
    """Refuses an advantage estimator that is not ours, or does not fit the failure policy.

    Raises:
        ValueError: names the setting and the remedy.
    """
    if name not in ESTIMATORS:
        raise ValueError(
            f"`advantage_estimator` must be one of {', '.join(ESTIMATORS)}, got {name!r}."
            " Estimators of Tunix's registry don't know rows without a reward; add one that does"
            " to trainer.estimators.ESTIMATORS."
        )
    registered = function_registry.default_registry.list_functions("advantage_estimator")
    if name in registered and ESTIMATORS[name].__module__ == estimators.__name__:
        estimator = function_registry.get_advantage_estimator(name)
        if not estimator.__module__.startswith("tunix."):
            raise ValueError(
                f"`advantage_estimator` {name!r} was registered anew with Tunix, where it would not"
                " be called. Give it a name of its own in trainer.estimators.ESTIMATORS."
            )
    if name == "gdpo" and policy.value is not None:
        raise ValueError(
            f"`on_failed_row` must be mask or abort with 'gdpo', got {policy.on_failed_row!r}."
            " A total of a failed row says nothing of each function."
        )


def check_critic(cluster: Any) -> None:
    """Refuses what PPO can't train with.

    Raises:
        ValueError: names the argument and the remedy.
    """
    models = cluster.inference_worker._models  # noqa: SLF001 - as Tunix's learner does
    if models.get("critic") is None:
        raise ValueError("PPO needs a critic. Pass `critic` to the RLCluster.")
    if models.get("reward") is not None:
        raise ValueError(
            "`reward` of the RLCluster must be None: rewards come from the reward server, which has"
            " the built-in function reward_model."
        )
    meshes = cluster.cluster_config.role_to_mesh
    if meshes[Role.CRITIC] != meshes[Role.ACTOR]:
        raise ValueError("the critic and the actor must be on one mesh.")
    if cluster.cluster_config.training_config.critic_optimizer is None:
        raise ValueError("`critic_optimizer` must be set in the training config for PPO.")


def note_vocabularies(cluster: Any) -> None:
    """Says, on process 0, that the model can sample ids that the tokenizer does not have."""
    config = getattr(cluster.actor_trainer.model, "config", None)
    rows = getattr(config, "vocab_size", 0) or getattr(config, "num_embed", 0)
    ids = max(vocabulary(cluster.tokenizer).values(), default=-1) + 1
    if rows > ids > 0 and jax.process_index() == 0:
        logger.warning(
            "the model has more token ids than the tokenizer model=%d tokenizer=%d: those beyond"
            " it, when they are sampled, become U+FFFD in the text that is scored",
            *(rows, ids),
        )


def check_sizes(config: Any, share: PromptShare) -> None:
    """Refuses batch sizes whose rows the data shards don't divide.

    Args:
        config: the training config, with the sizes of all processes.
        share: this process's part of each batch.

    Raises:
        ValueError: names the setting.
    """
    shards, g = share.layout.shards, share.num_generations
    for name in (
        *("mini_batch_size", "train_micro_batch_size"),
        *("rollout_micro_batch_size", "compute_logps_micro_batch_size"),
    ):
        size = getattr(config, name)
        if size and size * g % shards:
            raise ValueError(
                f"`{name}` times num_generations must be a multiple of the {shards} data shards,"
                f" got {size} * {g}."
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
