# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What Tunix's learners need to train on global arrays.

Each process feeds its rows; the samples stay on the device; rows go out for their rewards, see
`trainer.paths`, while reference and old log-probabilities are computed; the rewards come back as
one global array, and the advantage is computed on it.

Legend: B global rows, b local rows, G generations, F reward functions.
"""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.rl_cluster import Mode

from trainer import advantage, codec, coordination
from trainer.agreed_rewards import AgreedRewards, PackedRewards
from trainer.agreement import Agreement
from trainer.callbacks import trainers_of
from trainer.checkpoints import AgreedSaves
from trainer.client import RewardClient
from trainer.columns import LONGEST_PROMPT, PROMPT_NUMBER
from trainer.decode import decoder
from trainer.dump import RolloutDump
from trainer.exchange import raised_by_all
from trainer.failures import FailedRows, FailurePolicy
from trainer.global_rollout import GlobalRollout
from trainer.in_process import InProcessReward
from trainer.metrics import Metrics, length_metrics, reward_metrics
from trainer.micro_batches import cut, merge_local, row_ids_of
from trainer.outages import OutagePolicy, StoppedWaiting
from trainer.paths.choose import check_reward_fns, make_path
from trainer.paths.path import SampledPart, StepRewards
from trainer.prompt_share import PromptShare
from trainer.reporting import StepReport, make_report, sample_texts
from trainer.resume import free_restored_scalars
from trainer.rollout import RolloutArrays
from trainer.sampling import Sampling, rollouts_tree
from trainer.setup_checks import check_setup, check_sizes, local_share, note_vocabularies
from trainer.training import AgreedTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)


class Part(NamedTuple):
    """Rows of a training micro-batch and their rewards.

    Attributes:
        arrays: tokens, masks and log-probabilities by the names of Tunix's train example.
        packed: rewards, float32 [R, B, 3 F + 4], see `trainer.advantage.pack`.
    """

    arrays: dict[str, Any]
    packed: jax.Array


class ShardedLearner(AgreedTraining):
    """Mixin for Tunix's learners; an algorithm adds how it makes its train examples.

    Batch sizes of the training config are global sizes, as in one process.
    """

    # Where Tunix's learner logs the completions' lengths.
    _length_prefix: ClassVar[str] = "completions"

    def __init__(
        self,
        rl_cluster: rl_cluster_lib.RLCluster,
        algo_config: Any,
        reward_fns: RewardClient | Sequence[Callable[..., Any] | InProcessReward],
        metric_fns: Sequence[Any] | None = None,
        data_shuffle_seed: int | None = None,
        *,
        data: Literal["local", "replicated"] = "local",
        reward_path: Literal["grpc", "callback", "allgather"] = "grpc",
        score_on: Literal["all", "first"] = "all",
        agreement_timeout_s: float = 600.0,
        on_failed_row: str = "mask",
        max_failed_fraction: float = 0.25,
        on_reward_outage: str = "stop",
        outage_timeout_s: float = 3600.0,
        completion_prefix: str = "",
        on_step: Callable[[StepReport], None] | None = None,
        dump_rollouts: Path | None = None,
        drop_long_prompts: bool = False,
    ) -> None:
        """Checks the set-up and finds the reward functions.

        Args:
            rl_cluster: a cluster with `rollout_engine=ShardedRollout` or a `LocalRollout`.
            algo_config: settings of the algorithm.
            reward_fns: client of this process's reward server; with reward_path="allgather" Python
                functions, each alone or as an `InProcessReward`.
            metric_fns: not supported here; must be empty.
            data_shuffle_seed: as in Tunix; equal on all processes.
            data: "local": each process iterates its own rows; "replicated": each iterates the
                global batch and takes its rows of it.
            reward_path: "grpc": owned rows go to the reward server from the host; "callback": from
                a JAX operation, see `trainer.RewardOp`; "allgather": the rows of all processes
                are gathered and scored by functions in the training process.
            score_on: with "allgather": each process scores all rows, or the first one does.
            agreement_timeout_s: longest wait for another process, beyond the rewards' own limit.
            on_failed_row: "mask", "value=X" or "abort", see `trainer.failures.FailurePolicy`.
            max_failed_fraction: share of the rows of a step, or of an evaluation, without a reward
                above which the run ends.
            on_reward_outage: "stop" or "wait": when a reward server can't be reached, can't score
                or gives no rewards in its client's `timeout_s`, all processes end, or wait and
                send the same rows again.
            outage_timeout_s: longest such wait, in seconds; then the run ends.
            completion_prefix: text that the chat template puts before each completion.
            on_step: called on every process with the result of each sampling call.
            dump_rollouts: file of this process for its rows and their rewards, see `trainer.dump`.
            drop_long_prompts: leaves out prompts longer than max_prompt_length, and fills their
                places from the batches that follow. Default: such a batch is made wider.

        Raises:
            ValueError: an argument can't work here; the message says which and why.
            RewardError: no reward server, or another tokenizer.
        """
        check_reward_fns(reward_path, reward_fns, score_on)
        check_setup(rl_cluster, algo_config, metric_fns, data)
        policy = FailurePolicy(on_failed_row=on_failed_row, max_failed_fraction=max_failed_fraction)
        outages = OutagePolicy(on_reward_outage=on_reward_outage, outage_timeout_s=outage_timeout_s)
        self._check_algorithm(rl_cluster, algo_config, policy)
        # A list of its own: Tunix's DAPO appends to it.
        own = reward_fns if isinstance(reward_fns, RewardClient) else list(reward_fns)
        super().__init__(rl_cluster, algo_config, own, None, data_shuffle_seed)
        note_vocabularies(rl_cluster)
        config = rl_cluster.cluster_config.training_config
        self._rollout: GlobalRollout = rl_cluster.rollout
        # Tunix's GRPO sets it, PPO has none: its loss is at temperature 1.
        self._rollout.loss_temperature = getattr(algo_config, "temperature", 1.0)
        self._arrays = self._rollout.arrays
        self._agreement = Agreement(timeout_s=agreement_timeout_s)
        self._settings = {
            "`data_shuffle_seed`": data_shuffle_seed,
            "`data`": data,
            "`reward_path`": reward_path,
            "`agreement_timeout_s`": agreement_timeout_s,
            "`completion_prefix`": completion_prefix,
            "`on_reward_outage`": on_reward_outage,
            "`outage_timeout_s`": outage_timeout_s,
        }
        self._replicated = data == "replicated"
        self._share = PromptShare(
            layout=self._arrays.layout,
            num_generations=self._num_generations(),
            replicated=self._replicated,
        )
        self._drop_long_prompts = drop_long_prompts
        self._prefix = completion_prefix
        self._on_step = on_step
        self._dump = (
            RolloutDump(dump_rollouts, decode=decoder(rl_cluster.tokenizer))
            if dump_rollouts is not None
            else None
        )
        self._decode = decoder(rl_cluster.tokenizer, special_tokens=True)
        self._sampling = Sampling(
            rl_cluster, num_generations=self._num_generations(), replicated=self._replicated
        )
        self._failed = {mode: FailedRows(policy) for mode in (Mode.TRAIN, Mode.EVAL)}
        self._updates_a_step = 1
        # Batches that a checkpoint has seen are left out in `train`, not by Tunix.
        self._iter_steps = self._last_iter_step
        free_restored_scalars(rl_cluster.actor_trainer.optimizer)
        rl_cluster.actor_trainer._save_last_checkpoint = self._save_last_checkpoint  # noqa: SLF001
        check_sizes(config, self._share)
        self._saves = [
            AgreedSaves(trainer.checkpoint_manager, self._agreement, coordination.own())
            for trainer in trainers_of(rl_cluster)
        ]
        self._training_config = self._local_sizes(config)
        self._path = make_path(
            reward_path,
            reward_fns,
            arrays=self._arrays,
            agreement=self._agreement,
            tokenizer=rl_cluster.tokenizer,
            failed_value=policy.value,
            score_on=score_on,
        )
        self._settings["the timeout of rewards in seconds"] = self._path.timeout_s
        self._rewards = AgreedRewards(
            self._path,
            agreement=self._agreement,
            policy=policy,
            outages=outages,
            stop_reason=lambda: self._stop_reason,
            fingerprint=codec.tokenizer_fingerprint(rl_cluster.tokenizer),
        )

    def _check_algorithm(self, cluster: Any, algo_config: Any, policy: FailurePolicy) -> None:
        """Refuses what this algorithm can't do, before anything starts.

        Raises:
            ValueError: names the setting and the remedy.
        """

    def _local_sizes(self, config: Any) -> Any:
        """Scales the global batch sizes to the rows that this process iterates."""
        layout = self._arrays.layout
        held = layout.shards if self._replicated else len(layout.local_shards)
        local = copy.copy(config)
        for name in ("mini_batch_size", "train_micro_batch_size"):
            size = getattr(config, name)
            setattr(local, name, size and local_share(name, size, held, layout.shards))
        for name in ("rollout_micro_batch_size", "compute_logps_micro_batch_size"):
            size = getattr(config, name)
            setattr(self, f"_{name}", size and local_share(name, size, held, layout.shards))
        return local

    def _create_micro_batch_iterator(
        self, full_batch_iterator: Iterator[Any], micro_batch_size: int
    ) -> Iterator[Any]:
        """Cuts batches, see `trainer.micro_batches.cut`."""
        accumulated = self._training_config.get_with_default("gradient_accumulation_steps", 1)
        return cut(full_batch_iterator, micro_batch_size, per_update=accumulated)

    def _compute_trajectory_ids(self, example: Any, steps: int) -> list[str]:
        """Makes ids "<prompt>_<generation>" that are unique in the run, over all processes."""
        del steps
        g = self._num_generations()
        return [f"{p}_{i % g}" for i, p in enumerate(example.pop(PROMPT_NUMBER))]

    def _run_global_step(self, full_batch_size: int, mini_batch_size: int, *rest: Any) -> None:
        """Tells how many rows and updates the step has, and judges its failed rows at its end."""
        self._updates_a_step = full_batch_size // mini_batch_size
        failed = self._failed[Mode.TRAIN]
        failed.start(self._share.rows(full_batch_size)[0])
        try:
            super()._run_global_step(full_batch_size, mini_batch_size, *rest)
        except StopIteration:  # by which Tunix ends the last step, perhaps a shorter one
            self._judge(failed)
            raise
        except StoppedWaiting as stopped:
            self._on_stop(str(stopped))
            raise StopIteration from stopped
        self._judge(failed)

    def _prepare_data(self, *args: Any, mode: Mode = Mode.TRAIN, **keywords: Any) -> None:
        """Judges the failed rows of an evaluation at its end."""
        if mode != Mode.EVAL:
            super()._prepare_data(*args, mode=mode, **keywords)
            return
        self._failed[mode].start(None)
        super()._prepare_data(*args, mode=mode, **keywords)
        self._judge(self._failed[mode])

    def _judge(self, failed: FailedRows) -> None:
        """Ends the run, on all processes, if too many rows of a step failed that is over."""
        with raised_by_all():
            failed.finish()

    def _process_accumulated_batches(
        self, micro_batches: list[Any], micro_batch_sizes: list[int], mode: Mode
    ) -> list[Any]:
        """Samples, scores and computes advantages for micro-batches, then hands them out.

        Each step is one collective program on all processes; see the module docstring.
        """
        if not micro_batches:
            return []
        layout, g = self._arrays.layout, self._num_generations()
        sizes = [self._share.rows(size // g)[0] for size in micro_batch_sizes]
        rows = merge_local(micro_batches, sizes, layout, replicated=self._replicated)
        row_ids = row_ids_of(rows["trajectory_ids"], g)
        longest = max(rows.pop(LONGEST_PROMPT))
        step_rewards = self._path.begin(f"rows of step {self.rl_cluster.global_steps} ({mode})")
        rollouts = self._sample_and_send(step_rewards, rows, row_ids, longest, sum(sizes), mode)
        inferred = self._infer(rollouts, sum(sizes))
        # What is waited for from here on, the device has nothing to do meanwhile.
        jax.block_until_ready(inferred)
        arrays = {**rollouts_tree(rollouts), **inferred}
        place = f"rewards of step {self.rl_cluster.global_steps} ({mode})"
        dump = functools.partial(self._dump_rows, step_rewards) if self._dump else None
        rewards = self._rewards.wait(step_rewards, place, self._failed[mode], dump)
        contributions = step_rewards.contributions(rewards.values, sizes)
        slices = layout.merged_parts(sizes)
        parts = [
            Part(self._arrays.part_of_each_shard(arrays, part), packed)
            for part, packed in zip(slices, contributions, strict=True)
        ]
        examples, measured = self._make_examples(parts)
        measured["lengths"] = self._lengths(rollouts.completion_mask)
        # One copy to the host for all that is measured.
        self._report(jax.device_get(measured), mode, rewards, step_rewards)
        return examples

    def _make_examples(self, parts: list[Part]) -> tuple[list[Any], dict[str, Any]]:
        """Makes the train examples of micro-batches, for the algorithm.

        Args:
            parts: one for each micro-batch; together they are what was sampled and scored at once.

        Returns:
            Tunix's train example of each micro-batch; and arrays that every process can read:
            "packed", the rewards of all rows, and what `_algorithm_metrics` needs.
        """
        raise NotImplementedError

    def _algorithm_metrics(self, measured: dict[str, Any]) -> Metrics:
        """Makes metrics of the algorithm's own of what `_make_examples` gave, on the host."""
        raise NotImplementedError

    @functools.cached_property
    def _lengths(self) -> Any:
        """Program that counts the tokens of completions: [B, T] to [B], whole on every device."""
        return jax.jit(lambda mask: mask.sum(axis=-1), out_shardings=self._arrays.replicated)

    def _infer(self, rollouts: RolloutArrays, n: int) -> dict[str, jax.Array | None]:
        """Computes what the algorithm needs of the models, by Tunix's names; others are None.

        The rows are being scored meanwhile.
        """
        reference, old = self._sampling.log_probs(
            rollouts,
            self._sampling.runs(self._compute_logps_micro_batch_size, n),
            reference=self._wants_reference(),
            old=self._wants_old(),
        )
        return {"ref_per_token_logps": reference, "old_per_token_logps": old}

    def _wants_reference(self) -> bool:
        """Whether the algorithm needs log-probabilities of the reference model."""
        return bool(self.algo_config.beta)

    def _wants_old(self) -> bool:
        """Whether the algorithm needs log-probabilities of the policy that sampled.

        Without them Tunix takes those of the policy that is trained, which is another one in later
        iterations; and in later mini-batches, where samples come from the weights of the start of
        the step.
        """
        stale = self._updates_a_step > 1 and not self._rollout.shares_weights
        return bool(self._num_iterations() > 1 or stale)

    def _sample_and_send(
        self,
        step_rewards: StepRewards,
        rows: dict[str, Any],
        row_ids: NDArray[np.int64],
        longest: int,
        n: int,
        mode: Mode,
    ) -> RolloutArrays:
        """Samples run by run; a run's rows go out while the device samples the next one."""
        runs = self._sampling.runs(self._rollout_micro_batch_size, n)
        places = [self._sampling.local_rows_of(run, len(row_ids)) for run in runs]

        def send(chosen: NDArray[np.int64], rollouts: RolloutArrays) -> None:
            mine = {name: [values[i] for i in chosen] for name, values in rows.items()}
            ids, size = row_ids[chosen], rollouts.completion_ids.shape[0]
            step_rewards.send(
                SampledPart(
                    rollouts=rollouts,
                    held_row_ids=ids,
                    host_rows=lambda: self._owned_rows(mine, ids, size, mode),
                )
            )

        sampled: list[RolloutArrays] = []
        # A group whose rows come from two runs is sent whole, when all are there.
        by_run = all((run.stop - run.start) % self._num_generations() == 0 for run in runs)
        for part in self._sampling.sample(rows["prompts"], row_ids, runs, mode, longest):
            sampled.append(part)
            if by_run and len(sampled) > 1:
                send(places[len(sampled) - 2], sampled[-2])
        rollouts = self._sampling.join(sampled)
        if by_run:
            send(places[-1], sampled[-1])
        else:
            send(np.arange(len(row_ids)), rollouts)
        return rollouts

    def _owned_rows(
        self, rows: dict[str, Any], row_ids: NDArray[np.int64], n: int, mode: Mode
    ) -> codec.LocalRollouts:
        """Picks those of n rows that this process owns; their completions are on the device."""
        layout = self._arrays.layout
        keep = np.flatnonzero(np.isin(layout.local_rows(n), layout.owned_rows(n)))
        columns = {
            name: [values[i] for i in keep] for name, values in rows.items() if name != "prompts"
        }
        return codec.LocalRollouts(
            row_ids=row_ids[keep],
            group_ids=row_ids[keep] // self._num_generations(),
            prompts=[rows["prompts"][i] for i in keep],
            completion_ids=np.empty((len(keep), 0), np.int32),
            end_token_ids=self._rollout.end_token_ids(self.rl_cluster.get_rollout_config(mode)),
            pad_token_id=self._rollout.pad_id(),
            columns=columns,
            completion_prefixes=[self._prefix] * len(keep) if self._prefix else None,
            num_generations=self._num_generations(),
            step=self.rl_cluster.global_steps,
            mode=str(mode),
        )

    def _report(
        self,
        measured: dict[str, Any],
        mode: Mode,
        rewards: PackedRewards,
        step_rewards: StepRewards,
    ) -> None:
        """Buffers global metrics under Tunix's names; only process 0 writes them out."""
        names, lengths = self._rewards.names, measured["lengths"]
        scores = advantage.unpack(measured["packed"], self._rewards.weights)
        self.rl_cluster.buffer_metrics(
            {
                **reward_metrics(scores, names),
                **length_metrics(self._length_prefix, lengths),
                **self._algorithm_metrics(measured),
                **{f"rewards/failed/{k}": (v, np.sum) for k, v in sorted(rewards.failed.items())},
                "reward_wait_s": (rewards.wait_s, np.sum),
            },
            mode=mode,
        )
        if self._on_step is None:
            return
        with self._agreement.deferred():
            samples = sample_texts(step_rewards.rollouts, rewards.values, self._decode)
            self._on_step(
                make_report(
                    scores,
                    lengths,
                    names,
                    step=self.rl_cluster.global_steps,
                    mode=str(mode),
                    reward_wait_s=rewards.wait_s,
                    samples=samples,
                )
            )

    def _dump_rows(self, step_rewards: StepRewards, rewards: codec.RowRewards) -> None:
        assert self._dump is not None
        self._dump.write(step_rewards.rollouts, rewards)
