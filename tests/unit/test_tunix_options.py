# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner refuses of Tunix's options; the page on them names every one."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rl_cluster import ClusterConfig, Mode, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig

from tests.multiprocess.option_scenarios import HashEngine
from tests.multiprocess.scenarios import make_model, tokenizer
from trainer import LocalRollout, RewardClient, ShardedGRPOLearner, ShardedRollout
from trainer.setup_checks import check_rollout_configs

PAGE = Path(__file__).parents[2] / "docs" / "tunix_options.md"
ROLLOUT = RolloutConfig(max_tokens_to_generate=4, max_prompt_length=8, kv_cache_size=12)
AXES = ("data", "fsdp", "tp")


def mesh(*axes: str) -> Mesh:
    """A mesh of one device."""
    return Mesh(np.array(jax.devices()[:1]).reshape([1] * len(axes)), axes)


MESH = mesh(*AXES)
ROLES = dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), MESH)


@functools.cache
def model() -> Any:
    """The small model."""
    return make_model(MESH)


def cluster(*, training: dict | None = None, **changes: Any) -> RLCluster:
    """A cluster with one option changed."""
    training = {"eval_every_n_steps": 10, "max_steps": 5, **(training or {})}
    config = {
        "role_to_mesh": ROLES,
        "rollout_engine": ShardedRollout,
        "training_config": RLTrainingConfig(actor_optimizer=optax.sgd(0.1), **training),
        "rollout_config": ROLLOUT,
    }
    return RLCluster(
        actor=model(), tokenizer=tokenizer(), cluster_config=ClusterConfig(**config | changes)
    )


def learner(*, learner: dict | None = None, **changes: Any) -> ShardedGRPOLearner:
    """A learner with one option changed."""
    return ShardedGRPOLearner(
        rl_cluster=cluster(**changes),
        algo_config=GRPOConfig(beta=0.0),
        reward_fns=RewardClient("unix:/nowhere", connect_timeout_s=0.1),
        **(learner or {}),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollout_engine": "vanilla"}, "`rollout_engine` must be ShardedRollout or a LocalRoll"),
        (
            {"role_to_mesh": {**ROLES, Role.REFERENCE: mesh("data", "tp", "fsdp")}},
            "the actor and the reference must be on one mesh",
        ),
        ({"training": {"max_seq_token_per_tpu": 64}}, "`max_seq_token_per_tpu` .*must be None"),
        ({"training": {"max_steps": None}}, "`max_steps` must be set"),
        (
            {"training": {"data_sharding_axis": ("data",)}},
            r"`data_sharding_axis` must be \('fsdp',\)",
        ),
        (
            {
                "training": {"data_sharding_axis": ("data", "fsdp")},
                "rollout_engine": functools.partial(
                    ShardedRollout, data_sharding_axis=("data", "fsdp")
                ),
            },
            r"must be \(\('data', 'fsdp'\),\), .* got \('data', 'fsdp'\)",
        ),
        ({"learner": {"metric_fns": [len]}}, "`metric_fns` must be empty.*weight 0"),
        (
            {"rollout_config": dataclasses.replace(ROLLOUT, kv_cache_size=11)},
            "`kv_cache_size` .* must be >= prompt length 8 .* 4, got 11",
        ),
        (
            {
                "rollout_config": {
                    Mode.TRAIN: ROLLOUT,
                    Mode.EVAL: dataclasses.replace(
                        ROLLOUT, max_tokens_to_generate=5, kv_cache_size=64
                    ),
                }
            },
            "`kv_cache_size` of the config for training must be >= prompt length 8 .* 5, got 12",
        ),
    ],
)
def test_refused_at_construction(change: dict[str, Any], message: str) -> None:
    """The error names the option and the rule, before a reward server is asked for."""
    with pytest.raises(ValueError, match=message):
        learner(**change)


def test_a_rollout_on_another_mesh_is_refused() -> None:
    """Training and sampling at once would mix up the order of collectives."""
    other = {**ROLES, Role.ROLLOUT: mesh("data", "tp", "fsdp")}
    with pytest.raises(ValueError, match="the actor and the rollout must be on one mesh"):
        learner(role_to_mesh=other)


def test_offloading_is_refused() -> None:
    """The learner says so before it looks for a server."""
    with pytest.raises(ValueError, match="`offload_to_cpu` must be False"):
        learner(offload_to_cpu=True)


def test_evaluation_needs_its_config() -> None:
    """A dict of configs without one for evaluation is refused with data to evaluate on."""
    made = cluster(rollout_config={Mode.TRAIN: ROLLOUT})
    check_rollout_configs(made)
    with pytest.raises(ValueError, match="`rollout_config` must have a config"):
        check_rollout_configs(made, evaluates=True)


def test_an_engine_needs_the_size_of_the_vocabulary() -> None:
    """Where the actor does not say it, it must be given."""
    values = {"mesh": MESH, "rollout_config": ROLLOUT, "engine": HashEngine()}
    values["tokenizer"] = tokenizer()
    with pytest.raises(ValueError, match="`vocab_size` must be given"):
        LocalRollout(rollout_actor=object(), **values)
    assert LocalRollout(rollout_actor=object(), vocab_size=9, **values).arrays.layout.shards == 1


@pytest.mark.parametrize("config", [ClusterConfig, RLTrainingConfig, RolloutConfig, GRPOConfig])
def test_the_page_names_every_option(config: Any) -> None:
    """A new field of Tunix must be looked at: does it work, is it passed on, or refused?"""
    named = re.findall(r"`(\w+\*?)`", PAGE.read_text(encoding="utf-8"))
    prefixes = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    fields = {field.name for field in dataclasses.fields(config)}
    assert {name for name in fields - set(named) if not name.startswith(prefixes)} == set()
