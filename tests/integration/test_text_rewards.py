# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward function made of a client, called by the reward managers of Tunix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from transformers import AutoTokenizer
from tunix.rl.agentic.agentic_grpo_learner import GRPOConfig as AgenticConfig
from tunix.rl.function_registry import get_reward_manager
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig

from tests.integration import service
from tests.multiprocess.scenarios import char_tokenizer, make_model
from trainer import RewardClient, ScoringFailed

FUNCTION = """
def answered(prompts, completions, answer, **_):
    if completions[0] == "bad":
        raise ValueError("not this one")
    return [float(completions[0] == answer[0]) + len(prompts[0]) / 64]
"""
ANSWERS = ["4", "5 a", "bad"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RewardClient, object]]:
    """A client of a real server, and the tokenizer of both."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "answers.py").write_text(FUNCTION, encoding="utf-8")
    service.write_files(folder, rewards='[[reward]]\nfn = "answers.py:answered"\n')
    address = f"unix:{folder}/s"
    char_tokenizer().save(str(folder / "tokenizer.json"))
    with service.command(
        *("serve", "--listen", address, "--tokenizer", str(folder)),
        *("--rewards", str(folder / "rewards.toml"), "--slots", "1"),
    ):
        client = RewardClient(address, timeout_s=60, connect_timeout_s=60)
        yield client, AutoTokenizer.from_pretrained(folder)
        client.close()


@pytest.mark.parametrize(
    ("manager", "config", "more"),
    [
        ("sequence-level", GRPOConfig, {}),
        ("agentic-sequence-level", AgenticConfig, {"trajectory_rewards": [0.5, 1.0]}),
    ],
)
def test_managers_of_tunix_take_it(
    served: tuple[RewardClient, object], manager: str, config: Callable, more: dict
) -> None:
    """Rewards reach Tunix's managers, with columns, beside rewards of the environment."""
    client, tokenizer = served
    scores = get_reward_manager(manager)(
        reward_fns=client.as_reward_fn(tokenizer), algo_config=config()
    )
    got = scores(
        prompts=["2+2=", "pp"],
        completions=["4", "5 a"],
        answer=np.array(["4", "5"]),
        mode="train",
        **{name: list(values) for name, values in more.items()},
    )
    own = np.array([1 + 4 / 64, 2 / 64])
    assert got["rewards"].tolist() == (own + more.get("trajectory_rewards", 0)).tolist()
    assert "rewards/reward_server" in got["log_metrics"]


def test_a_row_without_a_reward_raises_or_has_a_value(
    served: tuple[RewardClient, object],
) -> None:
    """A failed row is never 0 by itself."""
    client, tokenizer = served
    rows = {"prompts": ["p"] * 3, "completions": ANSWERS, "answer": ANSWERS}
    with pytest.raises(ScoringFailed, match=r"1 of 3 rows have no reward: .*not this one"):
        client.as_reward_fn(tokenizer)(**rows)
    values = client.as_reward_fn(tokenizer, failed_value=-1.0)(**rows)
    assert values == [1 + 1 / 64, 1 + 1 / 64, -1.0]


def test_texts_that_the_tokenizer_changes_are_refused(
    served: tuple[RewardClient, object],
) -> None:
    """A completion that would reach the server as another text is an error."""
    client, tokenizer = served
    score = client.as_reward_fn(tokenizer)
    with pytest.raises(ValueError, match=r"give completions back as they were"):
        score(prompts=["p"], completions=["a<end>b"], answer=["a"])


def test_learner_of_tunix_trains_with_it(served: tuple[RewardClient, object]) -> None:
    """Tunix's GRPO learner, with its own sampler and reward manager, gets rewards of a server."""
    client, tokenizer = served
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    cluster = RLCluster(
        actor=make_model(mesh),
        tokenizer=tokenizer,
        cluster_config=ClusterConfig(
            role_to_mesh=dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), mesh),
            training_config=RLTrainingConfig(
                actor_optimizer=optax.sgd(0.1), eval_every_n_steps=10, max_steps=1
            ),
            rollout_config=RolloutConfig(
                max_tokens_to_generate=4, max_prompt_length=8, kv_cache_size=16, temperature=1.0
            ),
        ),
    )
    logged = []
    cluster.with_external_metrics_logger(lambda buffer: logged.append(buffer.metrics))
    GRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(beta=0.0, num_generations=4),
        reward_fns=client.as_reward_fn(tokenizer, failed_value=0.0),
    ).train([{"prompts": np.array(["2+2=", "1+2="]), "answer": np.array(["4", "3"])}])
    assert cluster.actor_trainer.train_steps == 1
    name = "rewards/reward_server"
    (rewards,) = [metrics[name][0][0] for metrics in logged if name in metrics]
    assert len(rewards) == 8
    assert min(rewards) >= 4 / 64
