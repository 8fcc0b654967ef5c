# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A queue of calls in which callers take turns."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from reward_server.batch import Batch


class _Call(Protocol):
    batch: Batch

    @property
    def queued(self) -> int:
        """Rows that nobody works on."""
        ...


C = TypeVar("C", bound=_Call)


class Turns(Generic[C]):
    """Calls with rows to give out: those of a caller in order, callers one after the other.

    A caller with one row does not wait behind another's ten thousand. Turns are even in chunks, not
    in seconds: what a row costs is not known beforehand.
    """

    def __init__(self) -> None:
        self._queues: collections.OrderedDict[str, collections.deque[C]] = collections.OrderedDict()

    def __iter__(self) -> Iterator[C]:
        """All calls that are waiting."""
        return (call for queue in self._queues.values() for call in queue)

    def __bool__(self) -> bool:
        """Whether a call is waiting."""
        return bool(self._queues)

    @property
    def queued(self) -> int:
        """Rows that are waiting."""
        return sum(call.queued for call in self)

    def append(self, call: C) -> None:
        """Lets a call wait behind the others of its caller; once is enough."""
        queue = self._queues.setdefault(call.batch.caller, collections.deque())
        if call not in queue:
            queue.append(call)

    def appendleft(self, call: C) -> None:
        """Lets a call wait before the others of its caller."""
        queue = self._queues.setdefault(call.batch.caller, collections.deque())
        if call not in queue:
            queue.appendleft(call)

    def discard(self, call: C) -> None:
        """Lets a call wait no longer."""
        queue = self._queues.get(call.batch.caller)
        if queue is not None and call in queue:
            queue.remove(call)
            if not queue:
                del self._queues[call.batch.caller]

    def take(self) -> C | None:
        """The call whose turn it is, which stays as long as it has rows; None if there is none."""
        while self._queues:
            caller, queue = next(iter(self._queues.items()))
            while queue and not queue[0].queued:
                queue.popleft()
            if queue:
                self._queues.move_to_end(caller)
                return queue[0]
            del self._queues[caller]
        return None
