# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""JAX's coordination service: small texts that all processes can read, and how a process leaves.

It is the service behind `jax.distributed`, run by process 0. It is reached by a private name, in
this file alone: `jax._src.distributed.global_state` with its `client`. What is agreed through it
is in `trainer.agreement`.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import time
from typing import Any

import jax
from jax._src import distributed

logger = logging.getLogger(__name__)

# Processes that end a job together reach its end within moments of each other.
LEAVE_S = 10.0
_LEFT = "shardward/left"
# Set when a process has left without the others: nobody can wait for it at the barrier.
_ALONE = "shardward/left-alone"
_POLL_S = 0.1


class Coordination:
    """The key-value store of a job, as one of its processes sees it.

    Attributes:
        process_index: this process.
        process_count: number of processes.
        client: JAX's client, or None with one process.
        number: of the next exchange, the same on all processes that are at the same place.
        broken: whether an exchange has failed.
    """

    def __init__(self, client: Any, process_index: int, process_count: int) -> None:
        """Takes the client of a process."""
        self.client = client
        self.process_index = process_index
        self.process_count = process_count
        self.number = 0
        self.broken = False

    def put(self, key: str, text: str) -> bool:
        """Sets a key; False if it had a value, which then stays."""
        try:
            self.client.key_value_set(key, text)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise
        return True

    def get(self, key: str, timeout_s: float) -> str | None:
        """Waits for a key; None if it has no value within the time."""
        try:
            text: str = self.client.blocking_key_value_get(key, max(1, int(timeout_s * 1000)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return text

    def peek(self, key: str) -> str | None:
        """Reads a key, or None."""
        try:
            text: str = self.client.key_value_try_get(key)
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise
        return text

    def folder(self, key: str) -> dict[str, str]:
        """Reads all keys below one, by what follows its slash."""
        pairs = self.client.key_value_dir_get(key)
        return {name[len(key) + 1 :]: text for name, text in pairs}

    def delete(self, key: str) -> None:
        """Forgets a key and all below it."""
        self.client.key_value_delete(key)


_own: Coordination | None = None


def own() -> Coordination:
    """The job of this process, made at the first call.

    Raises:
        RuntimeError: there are several processes but no coordination service.
    """
    global _own  # noqa: PLW0603 - a process has one
    if _own is None:
        count = jax.process_count()
        client = distributed.global_state.client if count > 1 else None
        if count > 1 and client is None:
            raise RuntimeError(
                "several JAX processes but no coordination service:"
                " call jax.distributed.initialize() first."
            )
        _own = Coordination(client, jax.process_index(), count)
    return _own


def current() -> Coordination | None:
    """The job that this process is in, also before it made `own`; None if it is alone."""
    state = distributed.global_state
    if state.client is None or state.num_processes < 2:
        return None
    return _own or Coordination(state.client, state.process_id, state.num_processes)


def leave(bound_s: float = LEAVE_S) -> None:
    """Leaves the job, so that the others need not wait for this process when they end.

    JAX leaves through a barrier. Where a process does not come to it, this one goes without.

    Args:
        bound_s: longest wait for the others, in seconds.
    """
    state = distributed.global_state
    job = current()
    if job is None:
        return
    missing = True
    deadline = time.monotonic() + bound_s
    # Where process 0 is gone there is nobody to leave.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        job.put(f"{_LEFT}/{job.process_index}", "")
        while missing and job.peek(_ALONE) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            missing = len(job.folder(_LEFT)) < job.process_count
        if not missing and job.peek(_ALONE) is None:
            state.shutdown()
            return
        job.put(_ALONE, "")
    logger.warning("left the job without the other processes waited_s=%.0f", bound_s)
    for kept in (state.client, state.service, state.preemption_sync_manager):
        # They wait for the other processes when they are destroyed, so they never are.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    state.client = state.service = state.preemption_sync_manager = None


def end_process(code: int) -> None:
    """Ends this process at once, whatever its threads do, after it has left the job."""
    leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
