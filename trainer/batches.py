# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of all processes: iterated in step, and checked to make up one global batch."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trainer.agreement import Agreement, Attempt
from trainer.columns import LONGEST_PROMPT, Columns
from trainer.errors import ProcessesDisagree

logger = logging.getLogger(__name__)

# Processes that have had so many prompts in common, and no others, iterate the same data.
_COPIES_AFTER = 8
_NOTHING: Columns = {}
_NO_BATCH: dict[str, Any] = {"rows": 0, "digest": "", "distinct": 0, "length": 0, "shards": []}


class AgreedBatches:
    """Iterates a dataset in step with all other processes.

    For each batch the processes agree that everybody has one of the same size; the run ends on
    all as soon as it ends on one.
    """

    def __init__(
        self,
        batches: Iterable[Columns],
        name: str,
        *,
        agreement: Agreement,
        local_shards: list[int] | None,
        prompt_lengths: Callable[[Sequence[str]], list[int]],
        longest: int | None,
        stop_reason: Callable[[], str],
        on_stop: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        """Wraps a dataset.

        Args:
            batches: see `trainer.dataset.PreparedBatches`.
            name: what it is, for messages.
            agreement: of all processes.
            local_shards: data shards whose rows this process iterates; None for the global batch.
            prompt_lengths: tokens of each of some prompts.
            longest: tokens of a prompt that the KV cache has room for; None if nothing bounds it.
            stop_reason: why this process wants to end before the next batch, or "".
            on_stop: called with the reason when one of them does.
            check: called before each batch; what it raises is raised on all processes.
        """
        self._batches = batches
        self._name = name
        self._agreement = agreement
        self._shards = local_shards
        self._lengths_of = prompt_lengths
        self._longest = longest
        self._stop_reason = stop_reason
        self._on_stop = on_stop
        self._check = check

    def __iter__(self) -> Iterator[Columns]:
        """Yields batches while every process has one, with `LONGEST_PROMPT` of all processes.

        Raises:
            ProcessesDisagree: the batches do not make up one global batch.
        """
        batches = Attempt(lambda: iter(self._batches))
        decide = _Decision(replicated=self._shards is None)
        for number in itertools.count():
            place = f"{self._name} batch {number}"
            mine = Attempt(functools.partial(self._next, batches))
            batch, value = mine.value or (_NOTHING, _NO_BATCH)
            decision = self._agreement.exchange(
                place,
                {**value, "stop": self._stop_reason()},
                functools.partial(decide, place),
                error=mine.error,
            )
            if decision["stop"]:
                logger.warning("stopping at %s: process %d got %s", place, *decision["stop"])
                self._on_stop(decision["stop"][1])
                return
            if ended := decision["ended"]:
                if len(ended) < self._agreement.process_count:
                    logger.warning("data ended early on processes=%s at %s", ended, place)
                return
            if sizes := decision["uneven"]:
                logger.warning(
                    "data ended at %s: the last batches differ in size and are left out"
                    " prompts_by_process=%s",
                    *(place, sizes),
                )
                return
            length = decision["length"]
            yield {**batch, LONGEST_PROMPT: np.full(len(batch["prompts"]), length)}

    def _next(self, batches: Attempt) -> tuple[Columns, dict[str, Any]] | None:
        """The next batch, and what the other processes are to know of it."""
        self._check()
        batch = next(batches.get(), None)
        if batch is None:
            return None
        prompts = batch["prompts"].tolist()
        lengths = self._lengths_of(prompts)
        length = max(lengths)
        if self._longest is not None and length > self._longest:
            raise ValueError(
                f"prompts must have at most {self._longest} tokens, which is what `kv_cache_size`"
                f" leaves beside max_tokens_to_generate; got {length} in row"
                f" {lengths.index(length)}. Raise it, shorten the prompt, or pass"
                " drop_long_prompts=True."
            )
        return batch, {
            "rows": len(prompts),
            "digest": hashlib.sha256("\0".join(prompts).encode()).hexdigest()[:16],
            "distinct": len(set(prompts)),
            "length": length,
            "shards": self._shards or [],
        }


class _Decision:
    """Whether all go on with the next batch, as process 0 finds."""

    def __init__(self, *, replicated: bool) -> None:
        self._replicated = replicated
        self._copies = _Copies(replicated=replicated)
        self._full: list[int] = []

    def __call__(self, place: str, values: list[dict[str, Any]]) -> dict[str, Any]:
        """Decides on what all processes say of their next batch.

        Returns:
            "stop": process and reason, or None; "ended": processes without a batch; "uneven": the
            sizes of last batches that make up none together, or None; "length": tokens of the
            longest prompt.

        Raises:
            ProcessesDisagree: the batches do not make up one global batch.
        """
        stop = next(((p, v["stop"]) for p, v in enumerate(values) if v["stop"]), None)
        ended = [p for p, v in enumerate(values) if not v["rows"]]
        uneven = None
        if not stop and not ended:
            sizes = [v["rows"] for v in values]
            self._full = self._full or sizes
            short = any(rows < full for rows, full in zip(sizes, self._full, strict=True))
            if short and _uneven(values) is not None and not self._replicated:
                uneven = sizes
            else:
                _check_batches(values, place, replicated=self._replicated)
                self._copies.check(values, place)
        length = max(v["length"] for v in values)
        return {"stop": stop, "ended": ended, "uneven": uneven, "length": length}


class _Copies:
    """Tells processes that iterate the same data from those that drew the same prompts once."""

    def __init__(self, *, replicated: bool) -> None:
        self._decided = replicated
        self._seen: list[tuple[str, int]] = []
        self._warned = False

    def check(self, values: list[dict[str, Any]], place: str) -> None:
        """Looks at the digests of a batch of all processes.

        Raises:
            ProcessesDisagree: processes with different rows have had the same prompts in all
                batches, and enough of them.
        """
        before = self._seen or [("", 0)] * len(values)
        self._seen = [
            (digests + value["digest"], prompts + value["distinct"])
            for (digests, prompts), value in zip(before, values, strict=True)
        ]
        if not self._decided:
            for one, other in _with_equal([digests for digests, _ in self._seen], values):
                prompts = self._seen[one][1]
                if prompts >= _COPIES_AFTER:
                    raise ProcessesDisagree(
                        f"{place}: processes {one} and {other} have the same prompts but hold"
                        f" different rows, {prompts} prompts so far. Pass data='replicated', or"
                        " give each process its own prompts.",
                        reason="SAME_DATA",
                    )
            self._decided = all(prompts >= _COPIES_AFTER for _, prompts in self._seen)
        if not self._warned and self._seen[0][0]:
            for one, other in _with_equal([value["digest"] for value in values], values):
                self._warned = True
                logger.warning(
                    "%s: processes %d and %d have the same prompts; in one batch it may be chance",
                    *(place, one, other),
                )
                break


def _with_equal(keys: list[str], values: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Pairs of processes with the same key that hold different rows."""
    first: dict[str, int] = {}
    for process, key in enumerate(keys):
        other = first.setdefault(key, process)
        if values[other]["shards"] != values[process]["shards"]:
            yield other, process


def _check_batches(values: list[dict[str, Any]], place: str, *, replicated: bool) -> None:
    """Checks that the batches of all processes make up one global batch."""
    if (process := _uneven(values)) is not None:
        raise ProcessesDisagree(
            f"{place}: process 0 has {values[0]['rows']} rows, process {process} has"
            f" {values[process]['rows']}. Give every process batches of its share.",
            reason="BATCH_SIZE",
        )
    by_shards: dict[str, tuple[int, str]] = {}
    for process, value in enumerate(values):
        key = "all" if replicated else str(value["shards"])
        other, digest = by_shards.setdefault(key, (process, value["digest"]))
        if digest != value["digest"]:
            raise ProcessesDisagree(
                f"{place}: processes {other} and {process} hold the same rows but have different"
                " prompts. Feed both the same data.",
                reason="DIFFERENT_DATA",
            )


def _uneven(values: list[dict[str, Any]]) -> int | None:
    """The first process whose batch is no share of the batch that process 0 has one of."""
    first = values[0]
    for process, value in enumerate(values):
        # With replicated data a process holds no shards, and each has the whole batch.
        share, of_first = len(value["shards"]) or 1, len(first["shards"]) or 1
        if value["rows"] * of_first != first["rows"] * share:
            return process
    return None
