# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What `grpo-train` makes of its flags."""

from __future__ import annotations

import pytest

from trainer.estimators import ESTIMATORS
from trainer.run import choose_algorithm
from trainer.run_config import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_has_its_learner_and_config(name: str) -> None:
    """The config says the algorithm, wants no reference model and fits the learner."""
    learner, config = choose_algorithm(name, 8)
    said = (config.algo_variant, config.loss_algo, config.advantage_estimator)
    assert name in said
    assert (config.num_generations, bool(config.beta)) == (8, False)
    assert config.advantage_estimator in ESTIMATORS
    family = {"dapo": "ShardedDAPOLearner", "drgrpo": "ShardedDrGRPOLearner"}
    assert learner.__name__ == family.get(name, "ShardedGRPOLearner")
