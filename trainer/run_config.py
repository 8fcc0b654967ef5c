# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a `grpo-train` run, from its flags and its environment. No JAX."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal

from shardward.addresses import broken_rule

from trainer import recipes
from trainer.failures import FailurePolicy
from trainer.paths import ALLGATHER, SERVER_PATHS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainer.recipes.recipe import Recipe

# Settings that each process may have for itself.
_OWN = frozenset(
    {
        *("reward_endpoint", "reward_tls_ca", "reward_tls_cert", "reward_tls_key"),
        *("reward_token_file", "reward_start_timeout", "out", "dump_rollouts", "log_level"),
        *("coordinator", "process_id", "checkpoint_dir"),
    }
)
AXES = ("fsdp", "tp")
ALGORITHMS = ("grpo", "gspo-token", "dapo", "drgrpo", "rloo", "gdpo")


class ConfigError(Exception):
    """The run cannot start as configured; the message says what to change."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a run, equal on all processes but for the reward server's and `process_id`.

    Attributes:
        reward_endpoint: reward server of this process: "unix:PATH" or "HOST:PORT".
        reward_tls_ca: PEM file of the server's CA; None for no TLS.
        reward_tls_cert: PEM file of the certificate to show the server.
        reward_tls_key: PEM file of its private key.
        reward_token_file: file of the token to show the server.
        reward_start_timeout: longest wait for the reward server to be ready, in seconds.
        reward_path: how rows get to it, see `trainer.paths`.
        recipe: name of a recipe.
        algorithm: one of `ALGORITHMS`.
        task: task of the recipe; None takes the recipe's.
        lora_rank: rank of LoRA matrices to train; 0 trains all weights, None takes the recipe's.
        steps: training steps; None takes the recipe's.
        mesh: sizes of the axes "fsdp" and "tp"; None puts all devices on "fsdp".
        seed: decides weights, problems and samples.
        out: folder for metrics.jsonl and train.json, written by process 0.
        dump_rollouts: whether each process writes its rows and their rewards into `out`.
        coordinator: HOST:PORT of process 0, or None to find the peers by JAX itself.
        num_processes: number of processes; with coordinator only.
        process_id: this process, from 0; with coordinator only.
        agreement_timeout: longest wait for another process, in seconds.
        reward_timeout: longest wait for the rewards of a batch, retries included, in seconds.
        on_failed_row: "mask", "value=X" or "abort", see `trainer.failures.FailurePolicy`.
        max_failed_fraction: share of failed rows in a step above which the run ends.
        on_reward_outage: "stop" or "wait", see `trainer.outages.OutagePolicy`.
        outage_timeout: longest wait in an outage of the rewards, in seconds.
        checkpoint_dir: folder of checkpoints that all processes share; a run goes on from the
            last one in it. None keeps none.
        checkpoint_every: steps between checkpoints.
        log_level: least level of this package's log lines.
    """

    reward_endpoint: str
    reward_tls_ca: str | None = None
    reward_tls_cert: str | None = None
    reward_tls_key: str | None = None
    reward_token_file: str | None = None
    reward_start_timeout: float = 180.0
    reward_path: Literal["grpc", "callback"] = "grpc"
    recipe: str
    algorithm: str = "grpo"
    task: str | None = None
    lora_rank: int | None = None
    steps: int | None = None
    mesh: dict[str, int] | None = None
    seed: int = 0
    out: Path
    dump_rollouts: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    agreement_timeout: float = 600.0
    reward_timeout: float = 300.0
    on_failed_row: str = "mask"
    max_failed_fraction: float = 0.25
    on_reward_outage: str = "stop"
    outage_timeout: float = 3600.0
    checkpoint_dir: Path | None = None
    checkpoint_every: int = 10
    log_level: str = "WARNING"

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: names the flag, the rule and the value.
        """
        if rule := broken_rule(self.reward_endpoint):
            raise ValueError(f"--reward-endpoint must be {rule}, got {self.reward_endpoint!r}.")
        if self.algorithm == "ppo":
            raise ValueError(
                "--algorithm ppo needs a critic, which recipes have not."
                " Use trainer.ShardedPPOLearner in a script."
            )
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"--algorithm must be one of {', '.join(ALGORITHMS)}, got {self.algorithm!r}."
            )
        if self.reward_path not in SERVER_PATHS:
            more = (
                " It takes Python functions: pass them to ShardedGRPOLearner in a script."
                if self.reward_path == ALLGATHER
                else ""
            )
            raise ValueError(
                f"--reward-path must be grpc or callback, got {self.reward_path!r}.{more}"
            )
        self.load_recipe()
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be >= 1, got {self.steps}.")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"--seed must be in [0, 2**31), got {self.seed}.")
        for name in (
            *("agreement_timeout", "reward_timeout", "reward_start_timeout"),
            "outage_timeout",
        ):
            if not 0 < getattr(self, name) < math.inf:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} must be > 0 seconds, got {getattr(self, name)}.")
        if self.checkpoint_every < 1:
            raise ValueError(f"--checkpoint-every must be >= 1, got {self.checkpoint_every}.")
        self._check_rewards()
        self._check_peers()

    def load_recipe(self) -> Recipe:
        """Loads the recipe with its options."""
        return recipes.load(self.recipe, task=self.task, lora_rank=self.lora_rank)

    def shared(self) -> dict[str, str]:
        """The settings that must be equal on all processes, by their flags."""
        names = [field.name for field in dataclasses.fields(self)]
        return {
            f"--{name.replace('_', '-')}": str(getattr(self, name))
            for name in names
            if name not in _OWN
        }

    @property
    def reward_credentials(self) -> dict[str, str | None]:
        """Settings of the `RewardClient` that say who may talk."""
        return {
            "tls_ca": self.reward_tls_ca,
            "tls_cert": self.reward_tls_cert,
            "tls_key": self.reward_tls_key,
            "token_file": self.reward_token_file,
        }

    def _check_rewards(self) -> None:
        FailurePolicy(
            on_failed_row=self.on_failed_row, max_failed_fraction=self.max_failed_fraction
        )
        if self.on_reward_outage not in ("stop", "wait"):
            raise ValueError(
                f"--on-reward-outage must be stop or wait, got {self.on_reward_outage!r}."
            )

    def _check_peers(self) -> None:
        peers = (self.coordinator, self.num_processes, self.process_id)
        if self.coordinator is None or self.num_processes is None or self.process_id is None:
            if any(value is not None for value in peers):
                raise ValueError(
                    "--coordinator, --num-processes and --process-id must be given together."
                )
            return
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"--coordinator must be HOST:PORT, got {self.coordinator!r}.")
        if self.num_processes < 1:
            raise ValueError(f"--num-processes must be >= 1, got {self.num_processes}.")
        if not 0 <= self.process_id < self.num_processes:
            raise ValueError(
                f"--process-id must be in [0, {self.num_processes}), got {self.process_id}."
            )


def parse_mesh(text: str) -> dict[str, int]:
    """Reads the sizes of mesh axes.

    Args:
        text: for example "fsdp=2,tp=2"; an axis that is left out has size 1.

    Raises:
        ValueError: an axis is unknown or a size is not a positive number.

    Example:
        >>> parse_mesh("fsdp=4")
        {'fsdp': 4, 'tp': 1}
    """
    sizes = dict.fromkeys(AXES, 1)
    for part in text.split(","):
        axis, _, size = part.strip().partition("=")
        if axis not in AXES or not size.isdigit() or int(size) < 1:
            raise ValueError(f"--mesh must be like fsdp=2,tp=2, got {text!r}.")
        sizes[axis] = int(size)
    return sizes


def in_cluster(environment: Mapping[str, str]) -> bool:
    """Says whether a scheduler started this process as one of several.

    Example:
        >>> in_cluster({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"})
        True
    """
    if "SLURM_PROCID" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        return True
    if "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment:
        return True
    return "JAX_COORDINATOR_ADDRESS" in environment or "," in environment.get(
        "TPU_WORKER_HOSTNAMES", ""
    )
