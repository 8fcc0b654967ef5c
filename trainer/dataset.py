# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's dataset on its way to the agreement of the processes: read, filtered, cut, numbered.

Each process does this for itself and needs no other: what comes out depends on its own batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trainer.columns import PROMPT_NUMBER, BatchReader, Columns
from trainer.prompt_share import PromptShare

logger = logging.getLogger(__name__)


class PreparedBatches:
    """Batches whose columns are checked, whose prompts fit and are numbered through the run."""

    def __init__(
        self,
        dataset: Iterable[Any],
        name: str,
        *,
        share: PromptShare,
        prompt_lengths: Callable[[Sequence[str]], list[int]],
        longest: int | None,
    ) -> None:
        """Wraps a dataset.

        Args:
            dataset: batches with "prompts" and other columns.
            name: what it is, for messages.
            share: this process's part of each batch.
            prompt_lengths: tokens of each of some prompts.
            longest: tokens above which prompts are left out; None leaves none out.
        """
        self._dataset = dataset
        self._name = name
        self._share = share
        self._lengths_of = prompt_lengths
        self._longest = longest

    def __iter__(self) -> Iterator[Columns]:
        """Yields batches, each column a 1-D object array; `PROMPT_NUMBER` is one of them.

        Raises:
            ValueError: a batch can't be read, or the data shards don't divide the first one.
        """
        reader = BatchReader()
        batches: Iterator[Columns] = (reader.read(batch) for batch in self._dataset)
        if self._longest is not None:
            batches = self._without_long_prompts(batches, self._longest)
        yield from self._divided(batches)

    def _without_long_prompts(self, batches: Iterable[Columns], longest: int) -> Iterator[Columns]:
        """Fills the places of prompts that are too long from the batches that follow.

        So batches keep their size, and those of all processes still fit together.
        """
        size, dropped, notice = 0, 0, 1
        rest: Columns = {}
        for batch in batches:
            size = size or len(batch["prompts"])
            lengths = self._lengths_of(batch["prompts"].tolist())
            keep = np.array([length <= longest for length in lengths], np.bool_)
            kept = {name: values[keep] for name, values in batch.items()}
            rest = {n: np.concatenate([rest[n], v]) for n, v in kept.items()} if rest else kept
            dropped += int((~keep).sum())
            if dropped >= notice:
                notice = 2 * dropped
                logger.warning(
                    "%s data: long prompts are left out so_far=%d tokens_above=%d",
                    *(self._name, dropped, longest),
                )
            while len(rest["prompts"]) >= size:
                yield {name: values[:size] for name, values in rest.items()}
                rest = {name: values[size:] for name, values in rest.items()}
        if rest and len(rest["prompts"]):
            yield rest
        if dropped:
            logger.warning(
                "%s data: long prompts were left out prompts=%d tokens_above=%d",
                *(self._name, dropped, longest),
            )

    def _divided(self, batches: Iterable[Columns]) -> Iterator[Columns]:
        """Cuts batches to what the data shards divide, and numbers the prompts of all processes."""
        first = 0
        for index, batch in enumerate(batches):
            b = len(batch["prompts"])
            size = self._share.usable(b) if index else b
            if size < b:
                logger.warning(
                    "%s batch %d: prompts are left out, since the data shards don't divide them"
                    " left_out=%d of=%d on this process: leave the last incomplete batch out of"
                    " the dataset, or choose sizes that fit",
                    *(self._name, index, b - size, b),
                )
            if not size:
                continue
            n, numbers = self._share.prompts(size)
            cut = {name: values[:size] for name, values in batch.items()}
            yield {**cut, PROMPT_NUMBER: (first + numbers).astype(object)}
            first += n
