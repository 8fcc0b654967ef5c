# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The private names of JAX and Tunix that this project leans on are still there."""

from __future__ import annotations

import inspect

import pytest
from jax._src import distributed
from jax._src.lib import _jax
from tunix.rl import rl_cluster, rl_learner
from tunix.sft import checkpoint_manager, peft_trainer


def test_coordination_service() -> None:
    """`trainer.coordination` uses the client behind `jax.distributed`, and takes it away."""
    for name in ("client", "service", "preemption_sync_manager", "process_id", "num_processes"):
        assert hasattr(distributed.global_state, name)


@pytest.mark.parametrize(
    "name",
    [
        *("key_value_set", "blocking_key_value_get", "key_value_try_get"),
        *("key_value_dir_get", "key_value_delete"),
    ],
)
def test_methods_of_the_client(name: str) -> None:
    """The client has the methods that `trainer.coordination` names."""
    assert callable(getattr(_jax.DistributedRuntimeClient, name))


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            rl_learner.RLLearner,
            [
                "_process_accumulated_batches",
                "_compute_trajectory_ids",
                "_last_iter_step",
                "_run_global_step",
                "_prepare_data",
            ],
        ),
        (
            peft_trainer.PeftTrainer,
            ["_save_last_checkpoint", "_lora_enabled", "_write_metrics", "_may_update_pbar"],
        ),
        (checkpoint_manager.CheckpointManager, ["_checkpoint_manager"]),
        (rl_cluster.RLCluster, ["_get_mesh_and_logical_axis_rules_cm", "_log_metrics"]),
    ],
)
def test_private_names_of_tunix(owner: type, names: list[str]) -> None:
    """The learner replaces or reads these."""
    source = inspect.getsource(inspect.getmodule(owner))
    for name in names:
        assert name in source, name


def test_a_step_of_tunix_tells_its_sizes() -> None:
    """The learner reads how many rows and updates a global step has, and when it evaluates."""
    step = inspect.signature(rl_learner.RLLearner._run_global_step)
    assert list(step.parameters)[1:3] == ["full_batch_size", "mini_batch_size"]
    assert "mode" in inspect.signature(rl_learner.RLLearner._prepare_data).parameters
