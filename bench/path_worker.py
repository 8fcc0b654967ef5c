# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""One JAX process of `bench.paths`: a step up to the advantage, by each reward path."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

PROMPT_LENGTH, NEW_TOKENS, GENERATIONS, FUNCTIONS = 512, 8, 4, 1
PATHS = {
    "grpc": ("grpc", "all"),
    "callback": ("callback", "all"),
    "allgather, all score": ("allgather", "all"),
    "allgather, first scores": ("allgather", "first"),
}
_COLLECTIVE = re.compile(
    r"= (.+?) (all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\("
)


def pausing(completions: list[str], pause_s: list[float], **_: Any) -> list[float]:
    """Takes the time that its rows say, without the CPU, as a judge behind a network does."""
    SCORED[0] += len(completions)
    time.sleep(sum(pause_s))
    return [float(len(completion)) for completion in completions]


SCORED = [0]


def bytes_between_processes(hlo: str, processes: int) -> int:
    """Bytes that processes receive from others in a program whose collectives span all devices.

    An all-gather gives each process what the others hold; a sum goes around twice.
    """
    total = 0
    for shapes, kind in _COLLECTIVE.findall(hlo):
        for bits, dims in re.findall(r"[a-z]+(\d+)\[([\d,]*)\]", shapes.replace("pred", "u8")):
            size = int(bits) // 8 * int(np.prod([int(d) for d in dims.split(",") if d]))
            total += size * (processes - 1) * (2 if kind == "all-reduce" else 1)
    return total


class Steps:
    """A model and its rows; the stages of a learner's step up to the advantage, in its order."""

    def __init__(self, endpoint: str, rows: int) -> None:
        """Makes the cluster.

        Args:
            endpoint: of this process's reward server.
            rows: of all processes.
        """
        import jax
        import optax
        from jax.sharding import Mesh
        from tunix.rl import rl_cluster
        from tunix.rl.rollout.base_rollout import RolloutConfig

        from trainer import RewardClient, ShardedRollout, recipes
        from trainer.agreement import Agreement
        from trainer.recipes.tiny_model import make_model
        from trainer.sampling import Sampling

        mesh = Mesh(np.array(jax.devices()).reshape(-1, 1), ("fsdp", "tp"))
        roles = (rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT)
        config = rl_cluster.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine=ShardedRollout,
            training_config=rl_cluster.RLTrainingConfig(
                actor_optimizer=optax.sgd(0.01), eval_every_n_steps=1, max_steps=1
            ),
            rollout_config=RolloutConfig(
                max_prompt_length=PROMPT_LENGTH,
                max_tokens_to_generate=NEW_TOKENS,
                kv_cache_size=PROMPT_LENGTH + NEW_TOKENS,
                temperature=1.0,
            ),
        )
        self._cluster = rl_cluster.RLCluster(
            actor=make_model(mesh, seed=0),
            reference=make_model(mesh, seed=1),
            tokenizer=recipes.load("tiny").tokenizer(),
            cluster_config=config,
        )
        self.processes = jax.process_count()
        self._rows = rows
        self._mine = np.arange(rows // self.processes) + rows // self.processes * (
            jax.process_index()
        )
        self._sampling = Sampling(self._cluster, num_generations=GENERATIONS, replicated=False)
        self._runs = self._sampling.runs(len(self._mine) // GENERATIONS, rows)
        self.agreement = Agreement(timeout_s=300)
        self._arrays = self._cluster.rollout.arrays
        self.client = RewardClient(endpoint, timeout_s=300)
        self.exchanged = 0
        exchange = self.agreement.exchange

        def counted(place: str, value: dict[str, Any], **more: Any) -> Any:
            self.exchanged += len(json.dumps({"place": place, "value": value}))
            return exchange(place, value, **more)

        self.agreement.exchange = counted  # type: ignore[method-assign]

    def sample(self) -> Any:
        """Samples the rows."""
        from tunix.rl.rl_cluster import Mode

        prompts = [f"{i % 5}+{i // 5 % 5}=" for i in self._mine // GENERATIONS]
        (rollouts,) = self._sampling.sample(prompts, self._mine, self._runs, Mode.TRAIN)
        return rollouts

    def log_probs(self, rollouts: Any) -> Any:
        """Reference log-probabilities, as the learner has them computed."""
        return self._sampling.log_probs(rollouts, self._runs, reference=True, old=False)[0]

    def stages(self) -> dict[str, float]:
        """Seconds of sampling and of the log-probabilities alone, and until the latter returns."""
        import jax

        start = time.perf_counter()
        rollouts = self.sample()
        jax.block_until_ready(rollouts.completion_ids)
        sampled = time.perf_counter()
        ref = self.log_probs(rollouts)
        returned = time.perf_counter()
        jax.block_until_ready(ref)
        return {
            "sample_s": sampled - start,
            "logps_s": time.perf_counter() - sampled,
            "logps_returned_s": returned - sampled,
        }

    def path(self, name: str) -> tuple[Any, Any]:
        """A reward path and what agrees on its rewards."""
        from trainer.agreed_rewards import AgreedRewards
        from trainer.failures import FailurePolicy
        from trainer.paths.choose import make_path

        kind, score_on = PATHS[name]
        path = make_path(
            kind,
            [pausing] if kind == "allgather" else self.client,
            arrays=self._arrays,
            agreement=self.agreement,
            tokenizer=self._cluster.tokenizer,
            failed_value=None,
            score_on=score_on,
        )
        agreed = AgreedRewards(
            path, agreement=self.agreement, policy=FailurePolicy(), fingerprint=""
        )
        return path, agreed

    def step(self, path: Any, agreed: Any, reward_s: float) -> tuple[float, float]:
        """A step whose rows need so many seconds for each process: its seconds, and the wait."""
        import jax

        from trainer import advantage
        from trainer.codec import LocalRollouts
        from trainer.paths.path import SampledPart

        start = time.perf_counter()
        rewards = path.begin("rows")
        rollouts = self.sample()
        host_rows = LocalRollouts(
            row_ids=self._mine,
            group_ids=self._mine // GENERATIONS,
            prompts=["1+1="] * len(self._mine),
            completion_ids=np.empty((len(self._mine), 0), np.int32),
            end_token_ids=[1],
            pad_token_id=0,
            # One row takes all of it: many short sleeps overshoot where the cores are busy.
            columns={"pause_s": [reward_s] + [0.0] * (len(self._mine) - 1)},
            num_generations=GENERATIONS,
        )
        rewards.send(
            SampledPart(rollouts=rollouts, held_row_ids=self._mine, host_rows=lambda: host_rows)
        )
        ref = self.log_probs(rollouts)
        jax.block_until_ready(ref)
        got = agreed.wait(rewards, "rewards")
        (packed,) = rewards.contributions(got.values, [self._rows])
        program = advantage.reward_step(
            self._arrays.row_sharding, self._arrays.replicated, GENERATIONS
        )
        jax.block_until_ready(program(packed))
        return time.perf_counter() - start, got.wait_s

    def hlo_bytes(self, name: str) -> int:
        """Bytes between processes in the compiled programs that carry rewards."""
        import jax

        from trainer import RewardOp, advantage

        arrays = self._arrays
        columns = advantage.packed_columns(FUNCTIONS)
        owned = np.zeros((len(self._mine), columns), np.float32)
        packed = arrays.from_owned_rows(owned, self._rows)
        program = advantage.reward_step(arrays.row_sharding, arrays.replicated, GENERATIONS)
        programs = [program.lower(packed)]
        if name == "callback":
            op = RewardOp(self.client, arrays.mesh, reward_fns=["pausing"])
            ids = arrays.from_local_rows(self._mine.astype(np.uint32), self._rows)
            tokens = np.zeros((len(self._mine), NEW_TOKENS), np.int32)
            tokens = arrays.from_local_rows(tokens, self._rows)
            programs.append(jax.jit(op).lower(ids, tokens))
        return sum(bytes_between_processes(p.compile().as_text(), self.processes) for p in programs)


def measure(steps: Steps, repeats: int) -> dict[str, Any]:
    """Takes turns among the paths, so that a busy moment meets all of them."""
    from trainer import gather

    gathered = [0]
    allgather = gather.multihost_utils.process_allgather

    def counted(buffer: Any) -> Any:
        out = allgather(buffer)
        gathered[0] += out.nbytes * (steps.processes - 1)
        return out

    gather.multihost_utils.process_allgather = counted
    paths = {name: steps.path(name) for name in PATHS}
    steps.stages()
    for path, agreed in paths.values():
        steps.step(path, agreed, 0.0)
    stages = [steps.stages() for _ in range(repeats)]
    alone = {key: min(stage[key] for stage in stages) for key in stages[0]}
    out: dict[str, Any] = {"alone": alone, "paths": {}}
    for name in PATHS:
        out["paths"][name] = {"quick_s": [], "steps_s": [], "waits_s": []}
    # All processes must make the same calls, and rewards of one length.
    reward_s = max(
        answer["s"] for answer in steps.agreement.exchange("length", {"s": alone["logps_s"]})
    )
    out["reward_s"] = reward_s
    for _ in range(repeats):
        for name, (path, agreed) in paths.items():
            here = out["paths"][name]
            here["quick_s"].append(steps.step(path, agreed, 0.0)[0])
            before = gathered[0], steps.exchanged, SCORED[0], steps.client.connect().rows_scored
            step_s, wait_s = steps.step(path, agreed, reward_s)
            here["steps_s"].append(step_s)
            here["waits_s"].append(wait_s)
            here["gathered_bytes"] = gathered[0] - before[0]
            here["agreed_bytes"] = (steps.exchanged - before[1]) * (steps.processes - 1)
            here["rows_here"] = SCORED[0] - before[2]
            here["rows_server"] = steps.client.connect().rows_scored - before[3]
    for name in PATHS:
        out["paths"][name]["hlo_bytes"] = steps.hlo_bytes(name)
    return out


def main() -> None:
    """Reads the plan, measures, writes what came out."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    process, count = int(sys.argv[2]), int(sys.argv[3])
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // count}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(plan["coordinator"], count, process)
    steps = Steps(plan["endpoints"][process], plan["rows"])
    out = measure(steps, plan["repeats"])
    Path(plan["out"], f"paths-{process}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
