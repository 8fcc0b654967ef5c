# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A training from its start to its end, which are the same on all processes.

What one step does is in `trainer.learner`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flax import nnx
from tunix.rl import rl_learner
from tunix.rl.rl_cluster import Mode

from trainer.agreement import Agreement, Attempt
from trainer.batches import AgreedBatches
from trainer.callbacks import deferred_callbacks, trainers_of
from trainer.checkpoints import AgreedSaves
from trainer.dataset import PreparedBatches
from trainer.exchange import raised_together
from trainer.resume import save_last_checkpoint, unfinished_batches
from trainer.run_settings import check_settings, run_settings
from trainer.setup_checks import check_rollout_configs

if TYPE_CHECKING:
    from trainer.global_rollout import GlobalRollout
    from trainer.prompt_share import PromptShare

logger = logging.getLogger(__name__)


class AgreedTraining(rl_learner.RLLearner):
    """What a Tunix learner does around its steps, in step with all processes."""

    _agreement: Agreement
    _drop_long_prompts: bool
    _rollout: GlobalRollout
    _share: PromptShare
    _saves: list[AgreedSaves]
    # More that must be equal on all processes, by name.
    _settings: dict[str, Any]
    _stop_reason = _stopped = ""

    def train(
        self, train_ds: Iterable[Any], eval_ds: Iterable[Any] | None = None, skip_jit: bool = False
    ) -> None:
        """Trains like Tunix's learner; all processes stop together.

        When all processes raise the same error between two updates, a last checkpoint is saved.

        Args:
            train_ds: batches with "prompts" and the columns of the reward functions.
            eval_ds: batches to evaluate on.
            skip_jit: as in Tunix.

        Raises:
            ProcessesDisagree: the processes' settings or data do not fit together, one of them
                failed, is gone or did not come in time. With one process its error is raised.
            ScoringFailed: too many rows have no reward.
        """
        with (
            self._agreement.guarded(lambda: f"step {self.rl_cluster.global_steps}"),
            deferred_callbacks(self._agreement, self.rl_cluster),
        ):
            batches, evals = self._start(train_ds, eval_ds)
            first = next(batches, None)
            if first is None:
                logger.warning(
                    "nothing to train on updates=%d", self.rl_cluster.actor_trainer.train_steps
                )
                self.rl_cluster.close()
            else:
                self._update_engine()
                with self._saved_at_error():
                    super().train(itertools.chain([first], batches), evals, skip_jit)
            self._agreement.all_ok("end of training", None)

    def _start(
        self, train_ds: Iterable[Any], eval_ds: Iterable[Any] | None
    ) -> tuple[Iterator[Any], AgreedBatches | None]:
        """Compares what must be equal; gives the batches that are left, and those to evaluate."""
        cluster = self.rl_cluster
        done = cluster.actor_trainer.train_steps
        checked = Attempt(lambda: check_rollout_configs(cluster, evaluates=eval_ds is not None))
        settings = {
            "the updates of the restored checkpoint": done,
            "`eval_ds` is given": eval_ds is not None,
            **self._settings,
            **run_settings(cluster, self.algo_config),
        }
        self._agreement.exchange("start of training", settings, check_settings, error=checked.error)
        rest = unfinished_batches(
            self._prepared(train_ds, Mode.TRAIN),
            updates_done=done,
            mini_batch_size=self._training_config.mini_batch_size,
            num_iterations=self.algo_config.num_iterations,
        )
        batches = iter(self._agreed(rest, Mode.TRAIN))
        if done >= cluster.cluster_config.training_config.max_steps:
            batches = iter(())
        if eval_ds is None:
            return batches, None
        return batches, self._agreed(self._prepared(eval_ds, Mode.EVAL), Mode.EVAL)

    @contextlib.contextmanager
    def _saved_at_error(self) -> Iterator[None]:
        """Saves a last checkpoint when all processes raise the same error together."""
        try:
            yield
        except Exception as error:
            trainer = self.rl_cluster.actor_trainer
            alone = self._agreement.process_count == 1
            if not (alone or raised_together(error)) or self._in_mid_update:
                raise
            saved = Attempt(self._save_and_wait)
            try:
                self._agreement.all_ok("the last checkpoint", saved.error)
            except Exception as second:  # noqa: BLE001 - the first error is the one to raise
                logger.error("no last checkpoint, after the error below: %s", second)  # noqa: TRY400
            else:
                if saved.value:
                    logger.warning("saved a last checkpoint updates=%d", trainer.train_steps)
            raise

    @property
    def _in_mid_update(self) -> bool:
        """Whether gradients of some micro-batches of an update are in the optimizer's state."""
        trainer = self.rl_cluster.actor_trainer
        micro_batches = trainer.config.get_with_default("gradient_accumulation_steps", 1)
        return bool(trainer.iter_steps % micro_batches)

    def _save_and_wait(self) -> bool:
        for trainer in trainers_of(self.rl_cluster):
            trainer._save_last_checkpoint()  # noqa: SLF001
        for saves in self._saves:
            saves.finish()
        trainer = self.rl_cluster.actor_trainer
        return bool(trainer.checkpoint_manager.latest_step() == trainer.train_steps > 0)

    def _update_engine(self) -> None:
        """Gives an engine with weights of its own those of the actor, restored ones perhaps."""
        if not self._rollout.shares_weights:
            self._rollout.update_params(nnx.state(self.rl_cluster.actor_trainer.model, nnx.Param))

    def request_stop(self, reason: str) -> None:
        """Ends the training of all processes before their next step, with a last checkpoint.

        May be called from a signal handler or another thread, on one process or several.

        Args:
            reason: text for the log; not empty.
        """
        self._stop_reason = reason

    @property
    def stopped(self) -> str:
        """Why training ended before its data did, or ""."""
        return self._stopped

    def _on_stop(self, reason: str) -> None:
        self._stopped = reason

    def _save_last_checkpoint(self) -> None:
        if self._stopped and self._in_mid_update:  # in an outage between two micro-batches
            logger.warning("no last checkpoint: stopped in mid-update")
            return
        save_last_checkpoint(
            self.rl_cluster.actor_trainer,
            global_step=self.rl_cluster.global_steps,
            lora=self.rl_cluster.actor_trainer._lora_enabled,  # noqa: SLF001
        )

    def _prepared(self, dataset: Iterable[Any], mode: Mode) -> PreparedBatches:
        config = self.rl_cluster.get_rollout_config(mode)
        return PreparedBatches(
            dataset,
            str(mode),
            share=self._share,
            prompt_lengths=self._rollout.prompt_lengths,
            longest=config.max_prompt_length if self._drop_long_prompts else None,
        )

    def _agreed(self, batches: Iterable[Any], mode: Mode) -> AgreedBatches:
        return AgreedBatches(
            batches,
            str(mode),
            agreement=self._agreement,
            local_shards=self._share.local_shards,
            prompt_lengths=self._rollout.prompt_lengths,
            longest=self._rollout.longest_prompt(self.rl_cluster.get_rollout_config(mode)),
            stop_reason=lambda: self._stop_reason if mode == Mode.TRAIN else "",
            on_stop=self._on_stop,
            check=self._check_saves,
        )

    def _check_saves(self) -> None:
        for saves in self._saves:
            saves.check()
