# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose failure on one process is known to all, within moments.

Orbax writes in a thread of each process; the threads meet at two barriers. A thread that fails, on
a full disk for example, does not come to them, and those of the others wait for 20 minutes. Here
it comes, and says that it failed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
from orbax.checkpoint import multihost

from trainer.agreement import Agreement, Attempt
from trainer.coordination import Coordination
from trainer.exchange import in_words

_PREFIX = "shardward/failed-save"
# Names of Orbax's barriers, in the order in which a thread comes to them.
_BARRIERS = ("async_write_complete", "async_commit_complete")
# Errors of TensorStore, which writes arrays, are long and end with the operating system's.
_SYSTEM = re.compile(r"([^:\[]+) \[os_error_code")
# Checkpoint managers are made in the same order on all processes, so this tells them apart.
_numbers = itertools.count()


class SaveError(Exception):
    """A checkpoint could not be written."""


class AgreedSaves:
    """The saves of one of Tunix's checkpoint managers, agreed upon by all processes."""

    def __init__(self, manager: Any, agreement: Agreement, job: Coordination) -> None:
        """Takes a manager, which is changed in place.

        Nothing is done if it keeps no checkpoints, or writes them before `save` returns.

        Args:
            manager: Tunix's checkpoint manager of a trainer.
            agreement: of all processes.
            job: of this process.
        """
        self._manager = manager._checkpoint_manager  # noqa: SLF001
        self._agreement = agreement
        checkpointer = getattr(self._manager, "_checkpointer", None)
        threads = getattr(checkpointer, "_async_manager", None)
        if threads is None:
            self._manager = None
            return
        prefix = f"{_PREFIX}/{next(_numbers)}"
        self._thread = _Thread(threads, job, prefix, agreement.timeout_s)
        self._manager.save = self._agreed(self._manager.save)

    def check(self) -> None:
        """Raises the error of a save that has failed by now; does not wait for one.

        Raises:
            SaveError: names the checkpoint and the process.
        """
        if self._manager is not None and self._thread.failed is not None:
            raise self._thread.failed

    def finish(self) -> None:
        """Waits until the last save is written.

        Raises:
            SaveError: names the checkpoint and the process.
        """
        if self._manager is None:
            return
        # Orbax raises an error of its thread once.
        self.check()
        self._manager.wait_until_finished()
        self.check()

    def _agreed(self, save: Callable[..., bool]) -> Callable[..., bool]:
        """Makes a save that begins when all processes know that the one before is written."""

        def agreed(step: int, *args: Any, **kwargs: Any) -> bool:
            before = Attempt(self.finish)
            self._agreement.all_ok(f"the save of checkpoint {step}", before.error)
            return save(step, *args, **kwargs)

        return agreed


class _Thread:
    """What Orbax's thread does for a save, so that it comes to the barriers whatever happens.

    Attributes:
        failed: the error of the last save, if it failed on a process.
    """

    def __init__(self, threads: Any, job: Coordination, prefix: str, timeout_s: float) -> None:
        self._threads = threads
        self._job = job
        self._prefix = prefix
        self._saves = self._passed = 0
        self.failed: SaveError | None = None
        self._run, self._sync = threads._thread_func, threads._sync_fn  # noqa: SLF001
        threads._thread_func, threads._sync_fn = self.run, self.sync  # noqa: SLF001
        threads._timeout_secs = max(1, math.ceil(timeout_s))  # noqa: SLF001

    def run(self, directory: Any, *args: Any) -> None:
        """Writes; after a failure comes to the barrier that the others wait at."""
        self._saves, self._passed, self.failed = self._saves + 1, 0, None
        self._run(directory, *args)
        error = self._threads._exception  # noqa: SLF001
        if error is None or isinstance(error, SaveError):
            self.failed = error
            return
        step = str(directory.name).partition(".")[0]
        self.failed = self._threads._exception = SaveError(  # noqa: SLF001
            f"checkpoint {step} failed on process {self._job.process_index}: {_short(error)}"
        )
        if self._job.client is not None:
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._come(directory, str(self.failed))

    def _come(self, directory: Any, text: str) -> None:
        """Says what failed, and comes to the barrier."""
        self._job.put(self._key, text)
        threads = self._threads
        if self._passed < len(_BARRIERS):
            key = multihost.unique_barrier_key(
                _BARRIERS[self._passed],
                prefix=threads._barrier_sync_key_prefix,  # noqa: SLF001
                suffix=directory.name,
            )
            self._sync(key, threads._timeout_secs * 1000)  # noqa: SLF001

    def sync(self, key: str, timeout_ms: int) -> None:
        """Waits at a barrier.

        Raises:
            SaveError: another process came to it after it had failed.
        """
        self._sync(key, timeout_ms)
        self._passed += 1
        failed = self._job.peek(self._key)
        if failed is not None:
            raise SaveError(failed)

    @property
    def _key(self) -> str:
        return f"{self._prefix}/{self._saves}"


def _short(error: BaseException) -> str:
    """What the file system said, if that can be told, or the error's first line."""
    found = _SYSTEM.search(str(error))
    return found[1].strip().lower() if found else in_words(error).partition("\n")[0]
