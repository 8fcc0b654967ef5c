# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scenarios that compare what Tunix's metrics logger gets from its learners and from ours."""

from __future__ import annotations

import numpy as np
from tunix.rl.grpo.dapo_learner import reward_shaping
from tunix.rl.grpo.grpo_learner import GRPOLearner
from tunix.rl.ppo.ppo_learner import PPOLearner
from tunix.rl.rollout.base_rollout import RolloutOutput
from tunix.sft.metrics_logger import MetricsLoggerOptions

from tests.multiprocess import scenarios
from tests.multiprocess.conftest import REWARD_FNS
from tests.multiprocess.learners import OVERLONG, config_of, make_learner
from trainer import RewardClient, ShardedRollout

LENGTH_WEIGHT = 0.5


class Backend:
    """A logging backend that keeps what it gets until it is closed."""

    def __init__(self):
        """Has nothing yet."""
        self.logged = []
        self._closed = False

    def log_scalar(self, event, value, **keywords):
        """Keeps one value."""
        if not self._closed and "step" in keywords:
            self.logged.append((event, float(np.mean(value)), int(keywords["step"])))

    def close(self):
        """JAX may go on calling."""
        self._closed = True


class NumberedRollout(ShardedRollout):
    """Counts its rows over the steps, as our learner does, for a learner that does not."""

    rows = 0

    def generate(self, prompts, rollout_config, **_):
        """Samples and hands out whole completions; nothing ends them in these scenarios."""
        ids = np.arange(len(prompts)) + NumberedRollout.rows
        NumberedRollout.rows += len(prompts)
        rollouts = self.generate_arrays(prompts, ids, rollout_config)
        tokens = np.asarray(rollouts.completion_ids)
        return RolloutOutput(
            text=[self._sampler.tokenizer.decode(row.tolist()) for row in tokens],
            logits=[],
            tokens=list(tokens),
            left_padded_prompt_tokens=np.asarray(rollouts.prompt_ids),
            logprobs=None,
        )


def tunix_learner(scenario, cluster):
    """Tunix's own learner with the reward functions in process."""
    functions = {}
    exec(REWARD_FNS, functions)
    in_server = functions["length"]

    def length(**arguments):
        return [LENGTH_WEIGHT * value for value in in_server(**arguments)]

    def shaping(prompts, completions, mode, **_):
        return reward_shaping(prompts, completions, mode, overlong_buffer=OVERLONG)

    shaping.__name__ = "reward_shaping"
    learner = PPOLearner if scenario["algorithm"] == "ppo" else GRPOLearner
    return learner(cluster, config_of(scenario), [functions["letter"], length, shaping])


def metrics(process, endpoint, scenario):
    """Trains without end and padding tokens; returns what the metrics logger got."""
    backend = Backend()
    options = MetricsLoggerOptions(log_dir="", backend_kwargs={"custom_backend": [lambda: backend]})
    tunix = scenario.get("tunix", False)
    NumberedRollout.rows = 0
    engine = NumberedRollout if tunix else ShardedRollout
    cluster = scenarios.make_cluster(scenarios.make_mesh([2, 2]), scenario, engine, options)
    sampler = cluster.rollout._sampler
    init = sampler.init_sample_state
    # Where the end token counts, ours and Tunix's masks differ by it.
    sampler.init_sample_state = lambda *args, **keywords: init(
        *args, **{**keywords, "forbidden_token_ids": (0, 1)}
    )
    if tunix:
        learner = tunix_learner(scenario, cluster)
    else:
        learner = make_learner(
            scenario, rl_cluster=cluster, reward_fns=RewardClient(endpoint), data="replicated"
        )
    pick = [list(range(8)), list(range(8, 16))]
    learner.train(
        [
            {
                "prompts": np.array([scenarios.PROMPTS[i] for i in rows]),
                "answer": np.array([scenarios.ANSWERS[i] for i in rows]),
            }
            for rows in pick
        ]
    )
    return {"logged": backend.logged}
