# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A row without a reward has no part in Tunix's losses: the gradient is that without the row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tunix.rl import algo_core
from tunix.rl.grpo.grpo_learner import GRPOConfig, TrainExample
from tunix.rl.ppo import ppo_learner

from trainer.advantage import mask_rows, pack_columns, reward_step

MODES = (
    "token-mean",
    "sequence-mean-token-mean",
    "sequence-mean-token-scale",
    "seq-mean-token-sum",
    "sequence-mean-token-sum-norm",
)
KEPT = np.array([0, 2, 3])
REWARDS = np.array([1.0, 1.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    """One device."""
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))


class Bigram(nnx.Module):
    """A model whose logits depend on the token before: the loss does not ask for more."""

    def __init__(self) -> None:
        """Draws a table [V, V]."""
        table = np.random.default_rng(1).normal(size=(32, 32))
        self.table = nnx.Param(jnp.asarray(table, jnp.float32))

    def __call__(self, tokens: Any, positions: Any, cache: Any, attention_mask: Any) -> Any:
        """Logits [B, L, V] of the tokens that come next."""
        del positions, attention_mask
        return self.table[...][tokens], cache


@pytest.fixture(scope="module")
def model() -> nnx.Module:
    """The model."""
    return Bigram()


def advantages_of(mesh: Mesh, estimator: str, valid: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Advantages of the group, and which rows count."""
    whole = NamedSharding(mesh, PartitionSpec())
    packed = pack_columns(REWARDS[:, None], REWARDS, valid, failed_value=None)[None]
    out = reward_step(whole, whole, 4, estimator)(packed)
    return out["advantages"][0], out["valid"][0]


def rows(mesh: Mesh, valid: np.ndarray[Any, Any], estimator: str = "grpo") -> dict[str, Any]:
    """Four rows of one prompt, of several lengths, of which some count."""
    dice = np.random.default_rng(0)
    lengths = np.array([2, 4, 3, 1])
    mask = jnp.asarray(np.arange(4) < lengths[:, None])
    advantages, counts = advantages_of(mesh, estimator, valid)
    old = dice.normal(-3, 0.2, (4, 4)).astype(np.float32)
    return {
        "prompt_ids": jnp.asarray(np.tile(dice.integers(2, 32, 3), (4, 1)), jnp.int32),
        "prompt_mask": jnp.ones((4, 3), bool),
        "completion_ids": jnp.asarray(dice.integers(2, 32, (4, 4)), jnp.int32),
        "completion_mask": mask_rows(mask, counts),
        "ref_per_token_logps": jnp.asarray(old + 0.1),
        "old_per_token_logps": jnp.asarray(old),
        "advantages": advantages,
    }


def loss_and_gradient(model: nnx.Module, loss: Any, example: Any, config: Any) -> Any:
    """Tunix's loss and its gradient by all weights."""

    def of_model(model: nnx.Module) -> Any:
        return loss(model, example, config, pad_id=0, eos_id=1)[0]

    value, gradient = nnx.value_and_grad(of_model)(model)
    return float(value), jax.tree.leaves(nnx.state(gradient))


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "drgrpo", "gdpo"])
def test_a_row_without_a_reward_leaves_the_baseline(mesh: Mesh, estimator: str) -> None:
    """Of [1, 1, 0, 0] without the second the advantages are as [.667, 0, -.333, -.333]."""
    got = np.asarray(advantages_of(mesh, estimator, np.array([True, False, True, True]))[0])
    np.testing.assert_allclose(got / got[0], [1, 0, -0.5, -0.5], atol=1e-6)
    if estimator == "drgrpo":
        np.testing.assert_allclose(got, [2 / 3, 0, -1 / 3, -1 / 3], atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["grpo", "gspo-token"])
def test_the_gradient_is_that_without_the_row(
    mesh: Mesh, model: nnx.Module, algorithm: str, mode: str
) -> None:
    """With the KL term, in every way in which Tunix adds up a loss."""
    config = GRPOConfig(num_generations=4, beta=0.1, loss_algo=algorithm, loss_agg_mode=mode)
    config.temperature = 1.0
    masked = rows(mesh, np.array([True, False, True, True]))
    without = {name: value[KEPT] for name, value in masked.items()}
    got, want = (
        loss_and_gradient(model, algo_core.grpo_loss_fn, TrainExample(**arrays), config)
        for arrays in (masked, without)
    )
    assert got[0] == pytest.approx(want[0], rel=1e-5)
    for mine, other in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert any(np.abs(leaf).max() > 1e-4 for leaf in got[1])


def test_the_gradient_of_ppo_is_that_without_the_row(mesh: Mesh, model: nnx.Module) -> None:
    """Of the policy, with advantages of each token."""
    dice = np.random.default_rng(2)
    masked = rows(mesh, np.array([True, False, True, True]))
    masked |= {
        name: jnp.asarray(dice.normal(size=(4, 4)), jnp.float32)
        for name in ("advantages", "returns", "old_values")
    }
    without = {name: value[KEPT] for name, value in masked.items()}
    got, want = (
        loss_and_gradient(
            model,
            algo_core.ppo_policy_loss_fn,
            ppo_learner.TrainExample(**arrays),
            ppo_learner.PPOConfig(),
        )
        for arrays in (masked, without)
    )
    assert got[0] == pytest.approx(want[0], rel=1e-5)
    for mine, other in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert any(np.abs(leaf).max() > 1e-4 for leaf in got[1])


@pytest.mark.parametrize("algorithm", ["grpo", "gspo-token", "ppo"])
def test_a_batch_without_any_reward_teaches_nothing(
    mesh: Mesh, model: nnx.Module, algorithm: str
) -> None:
    """Loss and gradient are 0, and not NaN."""
    nothing = rows(mesh, np.zeros(4, np.bool_))
    if algorithm == "ppo":
        zeros = jnp.zeros((4, 4))
        nothing |= {"advantages": zeros, "returns": zeros, "old_values": zeros}
        cases = [(ppo_learner.TrainExample(**nothing), ppo_learner.PPOConfig())]
        loss = algo_core.ppo_policy_loss_fn
    else:
        cases = [
            (
                TrainExample(**nothing),
                GRPOConfig(num_generations=4, beta=0.1, loss_algo=algorithm, loss_agg_mode=mode),
            )
            for mode in MODES
        ]
        loss = algo_core.grpo_loss_fn
    for example, config in cases:
        if algorithm != "ppo":
            config.temperature = 1.0
        value, gradient = loss_and_gradient(model, loss, example, config)
        assert value == 0
        assert not any(np.asarray(leaf).any() for leaf in gradient)
