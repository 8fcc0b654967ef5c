# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Code of the user's that Tunix calls between collectives: metrics and training hooks.

When it raises on one process, the error waits for the next exchange: see `Agreement.deferred`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from trainer.agreement import Agreement

# The innermost methods that call a logger or hook, after all that Tunix counts has been counted.
_OF_CLUSTER = ("_log_metrics",)
_OF_TRAINER = ("_write_metrics", "_may_update_pbar")


def trainers_of(cluster: Any) -> list[Any]:
    """Tunix's trainers of a cluster: of the actor, and of the critic if there is one."""
    critic = getattr(cluster, "critic_trainer", None)
    return [cluster.actor_trainer] + ([] if critic is None else [critic])


@contextlib.contextmanager
def deferred_callbacks(agreement: Agreement, cluster: Any) -> Iterator[None]:
    """Defers, within the block, errors of metrics loggers, progress bars and training hooks.

    Args:
        agreement: of all processes.
        cluster: Tunix's cluster, as it was again after the block.
    """
    trainers = trainers_of(cluster)
    with contextlib.ExitStack() as stack:
        for name in _OF_CLUSTER:
            stack.enter_context(
                _replaced(cluster, name, deferring(agreement, getattr(cluster, name)))
            )
        for trainer in trainers:
            for name in _OF_TRAINER:
                method = deferring(agreement, getattr(trainer, name))
                stack.enter_context(_replaced(trainer, name, method))
            if trainer.training_hooks is not None:
                hooks = _DeferringHooks(agreement, trainer.training_hooks)
                stack.enter_context(_replaced(trainer, "training_hooks", hooks))
        yield


def deferring(agreement: Agreement, call: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose errors wait for the next exchange; it returns None then."""

    @functools.wraps(call)
    def deferred(*args: Any, **kwargs: Any) -> Any:
        with agreement.deferred():
            return call(*args, **kwargs)

    return deferred


class _DeferringHooks:
    """Training hooks whose errors wait for the next exchange."""

    def __init__(self, agreement: Agreement, hooks: Any) -> None:
        self._agreement = agreement
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._hooks, name)
        return deferring(self._agreement, value) if callable(value) else value


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of an object for a block."""
    had = name in vars(owner)
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, old)
        else:
            delattr(owner, name)
