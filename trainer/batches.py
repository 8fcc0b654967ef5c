# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of all processes: iterated in step, and checked to make up one global batch."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from trainer.agreement import Agreement, Attempt
from trainer.columns import checked_batch
from trainer.errors import ProcessesDisagree

logger = logging.getLogger(__name__)


class AgreedBatches:
    """Iterates a dataset in step with all other processes.

    For each batch the processes agree that everybody has one of the same size; the run ends on
    all as soon as it ends on one.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        name: str,
        *,
        agreement: Agreement,
        local_shards: list[int] | None,
        prompt_length: Callable[[Sequence[str]], int],
        on_prompt_length: Callable[[int], None],
        stop_reason: Callable[[], str],
        on_stop: Callable[[str], None],
    ) -> None:
        """Wraps a dataset.

        Args:
            dataset: batches with "prompts" and other columns.
            name: what it is, for messages.
            agreement: of all processes.
            local_shards: data shards whose rows this process iterates; None for the global batch.
            prompt_length: tokens of the longest of some prompts.
            on_prompt_length: called with the longest prompt of all processes.
            stop_reason: why this process wants to end before the next batch, or "".
            on_stop: called with the reason when one of them does.
        """
        self._dataset = dataset
        self._name = name
        self._agreement = agreement
        self._shards = local_shards
        self._length_of = prompt_length
        self._on_prompt_length = on_prompt_length
        self._stop_reason = stop_reason
        self._on_stop = on_stop

    def __iter__(self) -> Iterator[Any]:
        """Yields batches while every process has one.

        Raises:
            ProcessesDisagree: the batches do not make up one global batch.
        """
        batches, number = iter(self._dataset), 0
        while True:
            attempt = Attempt(lambda: next(batches, None))
            value: dict[str, Any] = {"rows": 0, "digest": "", "length": 0, "shards": []}
            stop = self._stop_reason()
            if attempt.value is not None:
                attempt = Attempt(functools.partial(checked_batch, attempt.value))
            if attempt.value is not None:
                prompts = attempt.value["prompts"]
                value = {
                    "rows": len(prompts),
                    "digest": hashlib.sha256("\0".join(prompts).encode()).hexdigest()[:16],
                    "length": self._length_of(prompts),
                    "shards": self._shards or [],
                }
            place = f"{self._name} batch {number}"
            values = self._agreement.all_ok(place, attempt.error, {**value, "stop": stop})
            stops = {p: v["stop"] for p, v in enumerate(values) if v["stop"]}
            if stops:
                process, reason = next(iter(stops.items()))
                logger.warning("stopping at %s: process %d got %s", place, process, reason)
                self._on_stop(reason)
                return
            ended = [p for p, v in enumerate(values) if not v["rows"]]
            if ended:
                if len(ended) < len(values):
                    logger.warning("data ended early on processes=%s at %s", ended, place)
                return
            _check_batches(values, place, replicated=self._shards is None)
            self._on_prompt_length(max(v["length"] for v in values))
            number += 1
            yield attempt.value


def _check_batches(values: list[dict[str, Any]], place: str, *, replicated: bool) -> None:
    """Checks that the batches of all processes make up one global batch."""
    seen: dict[str, tuple[int, list[int]]] = {}
    for process, value in enumerate(values):
        share = 1 if replicated else len(value["shards"])
        first = 1 if replicated else len(values[0]["shards"])
        if value["rows"] * first != values[0]["rows"] * share:
            raise ProcessesDisagree(
                f"{place}: process 0 has {values[0]['rows']} rows, process {process} has"
                f" {value['rows']}. Give every process batches of its share.",
                reason="BATCH_SIZE",
            )
        other, shards = seen.setdefault(value["digest"], (process, value["shards"]))
        same_rows = replicated or shards == value["shards"]
        if other != process and not same_rows:
            raise ProcessesDisagree(
                f"{place}: processes {other} and {process} have the same prompts but hold"
                " different rows. Pass data='replicated', or give each process its own prompts.",
                reason="SAME_DATA",
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
