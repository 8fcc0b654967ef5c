# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of all processes: iterated in step, and checked to make up one global batch."""

from __future__ import annotations

import hashlib
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
        """
        self._batches = batches
        self._name = name
        self._agreement = agreement
        self._shards = local_shards
        self._lengths_of = prompt_lengths
        self._longest = longest
        self._stop_reason = stop_reason
        self._on_stop = on_stop

    def __iter__(self) -> Iterator[Columns]:
        """Yields batches while every process has one, with `LONGEST_PROMPT` of all processes.

        Raises:
            ProcessesDisagree: the batches do not make up one global batch.
        """
        batches, number = iter(self._batches), 0
        copies = _Copies(replicated=self._shards is None)
        full: list[int] = []
        while True:
            attempt = Attempt(lambda: self._described(next(batches, None)))
            batch, value = attempt.value or (None, _NO_BATCH)
            stop = self._stop_reason()
            place = f"{self._name} batch {number}"
            values = self._agreement.all_ok(place, attempt.error, {**value, "stop": stop})
            stops = {p: v["stop"] for p, v in enumerate(values) if v["stop"]}
            if stops:
                process, reason = next(iter(stops.items()))
                logger.warning("stopping at %s: process %d got %s", place, process, reason)
                self._on_stop(reason)
                return
            ended = [p for p, v in enumerate(values) if not v["rows"]]
            if ended or batch is None:
                if len(ended) < len(values):
                    logger.warning("data ended early on processes=%s at %s", ended, place)
                return
            sizes = [v["rows"] for v in values]
            full = full or sizes
            short = [p for p, rows in enumerate(sizes) if rows < full[p]]
            if short and _uneven(values) is not None and self._shards is not None:
                logger.warning(
                    "data ended at %s: the last batches differ in size and are left out"
                    " prompts_by_process=%s",
                    *(place, sizes),
                )
                return
            _check_batches(values, place, replicated=self._shards is None)
            copies.check(values, place)
            longest = max(v["length"] for v in values)
            number += 1
            yield {**batch, LONGEST_PROMPT: np.full(len(batch["prompts"]), longest)}

    def _described(self, batch: Columns | None) -> tuple[Columns, dict[str, Any]] | None:
        """A batch and what the other processes are to know of it."""
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
