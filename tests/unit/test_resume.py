# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of several trainers, with Tunix's own managers."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import jax.numpy as jnp
import pytest
from flax import nnx
from tunix.sft.checkpoint_manager import CheckpointManager

from trainer.resume import make_folder, save_in_turn

if TYPE_CHECKING:
    from pathlib import Path


class Weights(nnx.Module):
    """Enough of them that writing takes longer than to begin with it."""

    def __init__(self) -> None:
        """Makes 64 MB."""
        self.w = nnx.Param(jnp.ones((16, 2**20)))


def test_a_checkpoint_begins_when_the_other_is_written(tmp_path: Path) -> None:
    """Actor and critic are saved in the background, never both; without a folder nothing is."""
    model = Weights()
    managers = [CheckpointManager(str(tmp_path / name)) for name in ("actor", "critic")]
    first, second = (manager._checkpoint_manager for manager in managers)
    busy = []
    save = second.save

    def spy(*args, **kwargs):
        busy.append(first.is_saving_in_progress())
        return save(*args, **kwargs)

    second.save = spy
    managers[0].save(1, model)
    managers[1].save(1, model)
    save_in_turn(
        *(types.SimpleNamespace(checkpoint_manager=m) for m in (*managers, CheckpointManager()))
    )
    for step in (2, 3):
        for manager in managers:
            manager.save(step, model, force=True)
    assert busy == [True, False, False]
    for manager in managers:
        manager.close()
        assert manager.latest_step() == 3


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in its place: with the flag, the folder, what the system said and the remedy."""
    (tmp_path / "file").touch()
    for folder, cause in (("file", "File exists"), ("file/inside", "Not a directory")):
        with pytest.raises(OSError, match=rf"^--checkpoint-dir must .*{folder}: {cause}. Choose"):
            make_folder(tmp_path / folder)
    make_folder(tmp_path / "new" / "one")
    assert (tmp_path / "new" / "one").is_dir()
