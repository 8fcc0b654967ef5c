# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""GRPO and PPO training on sharded rollouts with rewards from a reward server.

Public names only. Names that need JAX are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.client import RewardClient
from trainer.config import RewardClientConfig
from trainer.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ProcessesDisagree,
    RewardError,
    ScoringFailed,
    Unavailable,
)
from trainer.in_process import InProcessReward

if TYPE_CHECKING:
    from trainer.algorithms import ShardedDAPOLearner, ShardedDrGRPOLearner, ShardedGRPOLearner
    from trainer.local_rollout import LocalRollout
    from trainer.ppo import ShardedPPOLearner
    from trainer.reporting import StepReport
    from trainer.reward_op import RewardOp
    from trainer.rollout import ShardedRollout

__all__ = [
    "DeadlineExceeded",
    "InProcessReward",
    "InvalidRequest",
    "LocalRollout",
    "ProcessesDisagree",
    "RewardClient",
    "RewardClientConfig",
    "RewardError",
    "RewardOp",
    "ScoringFailed",
    "ShardedDAPOLearner",
    "ShardedDrGRPOLearner",
    "ShardedGRPOLearner",
    "ShardedPPOLearner",
    "ShardedRollout",
    "StepReport",
    "Unavailable",
]

_HOMES = {
    "LocalRollout": "trainer.local_rollout",
    "ShardedDAPOLearner": "trainer.algorithms",
    "ShardedDrGRPOLearner": "trainer.algorithms",
    "ShardedGRPOLearner": "trainer.algorithms",
    "ShardedPPOLearner": "trainer.ppo",
    "RewardOp": "trainer.reward_op",
    "StepReport": "trainer.reporting",
    "ShardedRollout": "trainer.rollout",
}


def __getattr__(name: str) -> Any:
    """Imports the names that need JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOMES[name]), name)
