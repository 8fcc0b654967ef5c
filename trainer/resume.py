# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Going on from a checkpoint: what a run has been trained on, and its last checkpoint.

Tunix saves and restores model, optimizer and step counts; what it leaves to others is here.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

logger = logging.getLogger(__name__)

# Characters of an error of Orbax, which may list all arrays of a model.
_SHOWN = 300


def unfinished_batches(
    batches: Iterable[Any], *, updates_done: int, mini_batch_size: int | None, num_iterations: int
) -> Iterator[Any]:
    """Leaves out the batches that a restored checkpoint has been trained on.

    Tunix 0.1.7 leaves out one micro-batch for each update, which is too many when a batch is used
    for several.

    Args:
        batches: all batches of the run, from the first.
        updates_done: updates of the checkpoint.
        mini_batch_size: prompts of an update, of this process; None for a whole batch.
        num_iterations: updates with the same rows.
    """
    iterator = iter(batches)
    first = next(iterator, None) if updates_done else None
    if first is not None:
        size = len(first["prompts"])
        updates = size // (mini_batch_size or size) * num_iterations
        done, rest = divmod(updates_done, updates)
        if rest:
            logger.warning(
                "checkpoint in mid-batch updates=%d per_batch=%d: the rest of batch %d is left out",
                updates_done,
                updates,
                done,
            )
            done += 1
        logger.info("resumed updates=%d batches_left_out=%d", updates_done, done)
        for _ in range(done - 1):
            next(iterator, None)
    yield from iterator


def save_last_checkpoint(trainer: Any, *, global_step: int, lora: bool) -> None:
    """Saves a checkpoint of the last update unless there is one; a collective call.

    Tunix's own does not write the global step down, so that a resumed run would count from 0.

    Args:
        trainer: Tunix's trainer of the actor.
        global_step: steps that are done.
        lora: whether only LoRA parameters are saved.
    """
    manager = trainer.checkpoint_manager
    if trainer.train_steps and manager.latest_step() != trainer.train_steps:
        manager.save(
            trainer.train_steps,
            trainer.model,
            trainer.optimizer,
            save_only_lora_params=lora,
            force=True,
            custom_metadata={**trainer.custom_checkpoint_metadata(), "global_step": global_step},
        )


def make_folder(folder: Path) -> None:
    """Makes the root of the checkpoints, before Orbax waits there for the other processes.

    Raises:
        OSError: it can't be made or written in; the message says why.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not writable")
    except OSError as error:
        raise OSError(
            f"--checkpoint-dir must be a folder that every process can write in, got {folder}:"
            f" {error.strerror or error}. Choose another one, or change its owner."
        ) from error


def cannot_restore(folder: Path, error: Exception) -> str:
    """Says what can be done about a checkpoint that could not be restored.

    Args:
        folder: root of the checkpoints, as in Tunix's training config.
        error: what kept it from being restored.

    Returns:
        The error, or "" if there is no checkpoint in the folder.
    """
    found = {int(path.name): path for path in folder.glob("**/[0-9]*") if path.name.isdigit()}
    if not found:
        return ""
    *earlier, last = sorted(found)
    back = f"go on from step {earlier[-1]}" if earlier else "begin anew"
    cause = f"{type(error).__name__}: {error}".partition("\n")[0][:_SHOWN]
    return (
        f"the checkpoint of step {last} in {folder} can't be restored: {cause}. If the recipe or"
        " --lora-rank is another one than it was saved with, take that one; if it is damaged,"
        f" delete {found[last]} to {back}."
    )


def save_in_turn(*trainers: Any) -> None:
    """Has a trainer's checkpoint begin when those of the other trainers are written.

    Orbax writes them in threads whose barriers have the same names for every trainer of a Tunix
    cluster. Two at once enter each other's: the run ends, or a checkpoint lacks a process's part.

    Args:
        trainers: Tunix's trainers of a cluster, changed in place.
    """
    managers = [trainer.checkpoint_manager._checkpoint_manager for trainer in trainers]  # noqa: SLF001
    managers = [manager for manager in managers if manager is not None]
    for manager in managers:
        others = [other for other in managers if other is not manager]
        manager.save = functools.partial(_save_after, others, manager.save)


def _save_after(others: list[Any], save: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
    for other in others:
        other.wait_until_finished()
    return save(*args, **kwargs)


def free_restored_scalars(optimizer: Any) -> None:
    """Takes the restored scalars of an optimizer off the device that they were restored to.

    Tunix 0.1.7 restores the counters of an optimizer without sharded state, SGD for example, to
    one device of this process, from where they cannot join arrays of several processes.

    Args:
        optimizer: nnx optimizer, changed in place.
    """

    def freed(leaf: jax.Array) -> jax.Array:
        local = isinstance(leaf.sharding, jax.sharding.SingleDeviceSharding)
        return jnp.asarray(np.asarray(leaf)) if local else leaf

    state = nnx.state(optimizer, nnx.optimizer.OptState)
    nnx.update(optimizer, jax.tree.map(freed, state))
