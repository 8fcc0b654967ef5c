# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Sampling and log-probabilities of merged rows, in micro-batches. The same calls on all processes.

Legend: B global rows, b local rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from tunix.generate import utils as tunix_utils
from tunix.rl import utils as rl_utils
from tunix.rl.rl_cluster import Mode, RLCluster, Role

from trainer.global_rollout import GlobalRollout
from trainer.rollout import RolloutArrays

logger = logging.getLogger(__name__)

_EVAL_STREAM = 1


class Sampling:
    """Runs the models of a cluster over rows that lie shard by shard."""

    def __init__(self, cluster: RLCluster, *, num_generations: int, replicated: bool) -> None:
        """Takes the cluster.

        Args:
            cluster: with a `GlobalRollout`.
            num_generations: G, rows of a prompt.
            replicated: whether micro-batch sizes count prompts of all processes.
        """
        self._cluster = cluster
        self._rollout: GlobalRollout = cluster.rollout
        self._arrays = self._rollout.arrays
        self._g = num_generations
        self._replicated = replicated
        self._widths: set[int] = set()

    def prompt_width(self, longest: int, config: Any) -> int:
        """Tokens that the prompts of a batch are padded to.

        That is max_prompt_length, or for longer prompts a power of two, as in Tunix, so that few
        programs are compiled; but no more than the KV cache has room for.

        Args:
            longest: tokens of the longest prompt of the batch, over all processes.
            config: sampling settings.
        """
        if longest <= config.max_prompt_length:
            return int(config.max_prompt_length)
        width: int = tunix_utils.next_power_of_2(longest)
        room = self._rollout.longest_prompt(config)
        if room is not None:
            width = max(longest, min(width, room))
        if width not in self._widths:
            self._widths.add(width)
            logger.warning(
                "prompts are longer than max_prompt_length=%d: their batch is padded to %d tokens"
                " longest=%d; drop_long_prompts=True leaves such prompts out",
                *(config.max_prompt_length, width, longest),
            )
        return width

    def runs(self, micro_batch_size: int, n: int) -> list[slice]:
        """Slices of each shard's rows that make runs of micro_batch_size prompts in all.

        Args:
            micro_batch_size: prompts, of all processes if replicated, else of this one.
            n: global rows, B.

        Raises:
            ValueError: a run can't be split over the shards.
        """
        layout = self._arrays.layout
        share = 1 if self._replicated else layout.shards / len(layout.local_shards)
        rows = round(micro_batch_size * share) * self._g
        if rows % layout.shards:
            raise ValueError(
                f"a micro-batch of {rows} rows must be a multiple of the {layout.shards} data"
                " shards. Change the micro-batch sizes or num_generations."
            )
        step = min(rows, n) // layout.shards
        return list(rl_utils.chunk_slices_by_size(stop=layout.rows_per_shard(n), step=step))

    def local_rows_of(self, run: slice, b: int) -> NDArray[np.int64]:
        """Places of a run's rows among the b rows of this process, shard by shard."""
        held = len(self._arrays.layout.local_shards)
        rows: NDArray[np.int64] = np.arange(b).reshape(held, -1)[:, run].reshape(-1)
        return rows

    def sample(
        self,
        prompts: list[str],
        row_ids: NDArray[np.int64],
        runs: list[slice],
        mode: Mode,
        longest: int,
    ) -> Iterator[RolloutArrays]:
        """Samples run by run; each is under way on the device when it is yielded.

        Args:
            prompts: of the b rows of this process.
            row_ids: int64 [b].
            runs: slices of each shard's rows.
            mode: train or eval.
            longest: tokens of the longest prompt of the rows of all processes.
        """
        config = self._cluster.get_rollout_config(mode)
        length = self.prompt_width(longest, config)
        stream = _EVAL_STREAM if mode == Mode.EVAL else 0
        for run in runs:
            rows = self.local_rows_of(run, len(prompts))
            with self._cluster._get_mesh_and_logical_axis_rules_cm(Role.ROLLOUT):  # noqa: SLF001
                sampled = self._rollout.generate_arrays(
                    [prompts[i] for i in rows],
                    row_ids[rows],
                    config,
                    prompt_length=length,
                    stream=stream,
                )
            yield sampled

    def join(self, parts: list[RolloutArrays]) -> RolloutArrays:
        """Joins runs to the rows of all of them."""
        return RolloutArrays(**self._arrays.join_each_shard([rollouts_tree(p) for p in parts]))

    def log_probs(
        self, rollouts: RolloutArrays, runs: list[slice], *, reference: bool, old: bool
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """Computes reference and old log-probabilities, float32 [B, T] each, where wanted."""
        of_ref, of_old = [], []
        for prompts, completions in self._runs_of(rollouts, runs if reference or old else []):
            if reference:
                of_ref.append(self._reference_log_probs(prompts, completions))
            if old:
                of_old.append(self._old_log_probs(prompts, completions))
        return self._joined(of_ref), self._joined(of_old)

    def values(self, rollouts: RolloutArrays, runs: list[slice]) -> jax.Array | None:
        """Computes the critic's values before each completion token, float32 [B, T]."""
        length = rollouts.completion_ids.shape[1]
        pad_id, eos_id = self._rollout.pad_id(), self._rollout.eos_id()
        return self._joined(
            [
                self._cluster.get_values(prompts, completions, pad_id, eos_id)[:, -length - 1 : -1]
                for prompts, completions in self._runs_of(rollouts, runs)
            ]
        )

    def _runs_of(
        self, rollouts: RolloutArrays, runs: list[slice]
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Prompt and completion ids of each run."""
        tokens = (rollouts.prompt_ids, rollouts.completion_ids)
        for run in runs:
            yield self._arrays.part_of_each_shard(tokens, run)

    def _reference_log_probs(self, prompts: jax.Array, completions: jax.Array) -> jax.Array:
        """At the temperature of the loss: Tunix's cluster takes that of the rollout.

        PPO's loss is at 1; there an identical policy would be penalised.
        """
        with self._cluster._get_mesh_and_logical_axis_rules_cm(Role.REFERENCE):  # noqa: SLF001
            reference: jax.Array = self._cluster.inference_worker.get_ref_per_token_logps(
                prompts,
                completions,
                self._rollout.pad_id(),
                self._rollout.eos_id(),
                temperature=self._rollout.loss_temperature,
            )
        return reference

    def _old_log_probs(self, prompts: jax.Array, completions: jax.Array) -> jax.Array:
        if self._rollout.shares_weights:
            old: jax.Array = self._cluster.get_old_per_token_logps(prompts, completions)
        else:
            # Of the weights that the engine was given last, which Tunix keeps.
            old = self._cluster.get_actor_per_token_logps(
                prompts,
                completions,
                self._rollout.pad_id(),
                self._rollout.eos_id(),
                temperature=self._rollout.loss_temperature,
            )
        return old

    def _joined(self, parts: list[jax.Array]) -> jax.Array | None:
        if not parts:
            return None
        pin = self._arrays.row_sharding
        whole: jax.Array = self._arrays.join_each_shard([jax.device_put(x, pin) for x in parts])
        return whole


def rollouts_tree(rollouts: RolloutArrays) -> dict[str, Any]:
    """The arrays of a train example that come from the rollout, by Tunix's names."""
    return {
        "prompt_ids": rollouts.prompt_ids,
        "prompt_mask": rollouts.prompt_mask,
        "completion_ids": rollouts.completion_ids,
        "completion_mask": rollouts.completion_mask,
    }
