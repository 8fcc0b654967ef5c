# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples of an engine that are older than the weights: the ratio is that of both policies."""

from __future__ import annotations

import numpy as np
from flax import nnx
from tunix.rl import common
from tunix.rl.grpo.grpo_learner import GRPOConfig

from tests.multiprocess.option_scenarios import HashEngine, make_cluster
from tests.multiprocess.scenarios import ANSWERS, PROMPTS
from trainer import ShardedGRPOLearner


def sevens(prompts, completions, **_):
    """Differs from row to row."""
    return [float(len(c) + i % 3) for i, c in enumerate(completions)]


def logps(cluster, example):
    """Log-probabilities of the tokens of an example by the weights of now, float32 [B, T]."""
    found = common.compute_per_token_logps(
        *nnx.split(cluster.actor_trainer.model),
        prompt_tokens=example.prompt_ids,
        completion_tokens=example.completion_ids,
        pad_id=0,
        eos_id=1,
        stop_gradient=True,
    )
    return np.asarray(found[0] if isinstance(found, tuple) else found)


def test_later_mini_batches_have_the_log_probabilities_of_their_samples():
    """They come from the weights of the start of the step, which the first update has changed."""
    scenario = {"mesh": [1, 1], "order": [0], "training": {"mini_batch_size": 4}}
    cluster = make_cluster(scenario, HashEngine())
    learner = ShardedGRPOLearner(
        rl_cluster=cluster,
        algo_config=GRPOConfig(num_generations=4, beta=0.0),
        reward_fns=[sevens],
        reward_path="allgather",
        data="replicated",
    )
    seen = []
    update = cluster.update_actor

    def spy(examples, *rest):
        for example in examples:
            mask = np.asarray(example.completion_mask)
            now = logps(cluster, example)
            assert example.old_per_token_logps is not None
            seen.append(np.abs(now - np.asarray(example.old_per_token_logps))[mask].max())
        update(examples, *rest)

    cluster.update_actor = spy
    batch = {"prompts": np.array(PROMPTS[:8]), "answer": np.array(ANSWERS[:8])}
    learner.train([batch])
    assert len(seen) == 2
    # The first is on-policy; the second is as far off as the first update has moved the weights.
    assert seen[0] < 1e-4
    assert seen[1] > 1e-3
