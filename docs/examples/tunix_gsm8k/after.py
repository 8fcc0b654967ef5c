# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The same in any number of processes, with rewards from a reward server next to each."""

import signal

import optax
import task
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig

from trainer import RewardClient, ShardedGRPOLearner, ShardedRollout

parser = task.make_parser()
parser.add_argument("--endpoint", required=True)
flags = parser.parse_args()
mesh = task.start(flags)
tokenizer = task.make_tokenizer(flags.model)
actor, reference = task.make_models(flags.model, mesh, tokenizer)
prompt_length, completion_length = task.PROMPT_LENGTH[flags.model], 64

cluster_config = ClusterConfig(
    role_to_mesh={Role.ACTOR: mesh, Role.REFERENCE: mesh, Role.ROLLOUT: mesh},
    rollout_engine=ShardedRollout,
    training_config=RLTrainingConfig(
        actor_optimizer=optax.adamw(1e-3, b1=0.9, b2=0.99, weight_decay=0.1),
        eval_every_n_steps=1_000_000,
        max_steps=flags.steps,
    ),
    rollout_config=RolloutConfig(
        max_prompt_length=prompt_length,
        max_tokens_to_generate=completion_length,
        kv_cache_size=prompt_length + completion_length,
        temperature=0.9,
        top_p=1.0,
    ),
)
cluster = RLCluster(
    actor=actor, reference=reference, tokenizer=tokenizer, cluster_config=cluster_config
).with_external_metrics_logger(task.print_reward)
learner = ShardedGRPOLearner(
    rl_cluster=cluster,
    algo_config=GRPOConfig(num_generations=4, beta=0.08, epsilon=0.2),
    reward_fns=RewardClient(flags.endpoint),
    data="replicated",
)
signal.signal(signal.SIGTERM, lambda *_: learner.request_stop("SIGTERM"))
learner.train(task.make_dataset(flags, tokenizer))
