# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of a chunk in a child: texts, columns, and the arguments of a function for them.

What becomes of them is decided in `reward_server.child`.
"""

from __future__ import annotations

import array
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from reward_server import decode, registry
from reward_server.batch import Chat, RowStatus
from reward_server.config import MAX_NAME_CHARACTERS


class ChunkRows:
    """One chunk: its texts, columns and what is known of its rows so far.

    Args:
        header: JSON of the frame, see `reward_server.calls.Call.message`.
        binary: int32 lengths and ids of the completions, then of the prompts if they are no texts.

    Attributes:
        failed: status of each row that has failed so far, by its index.
        extras: extra columns that have not been sent, by name: index and value.
        judged: rows whose async and group functions were through when another child died.
    """

    def __init__(self, header: dict[str, Any], binary: bytes) -> None:
        self.id: int = header["id"]
        self.count: int = header["rows"]
        self.columns: dict[str, list[Any]] = header["columns"]
        self.given: dict[str, Any] = {"mode": header["mode"], "step": header["step"]}
        self.completions: list[str | Chat] | None = header["completions"]
        self._has_ids: bool = header["has_ids"]
        self.prompts: list[str | Chat] | None = header["prompts"]
        self.prefixes: list[str] | None = header["prefixes"]
        numbers = np.frombuffer(binary, np.int32)
        lengths = numbers[: self.count].astype(np.int64)
        rest = numbers[self.count :]
        total = int(lengths.sum())
        self.ids = decode.split(rest[:total], lengths)
        self.prompt_ids: list[array.array[int]] | None = None
        if self.prompts is None:
            rest = rest[total:]
            lengths = rest[: self.count].astype(np.int64)
            self.prompt_ids = decode.split(rest[self.count :], lengths)
        self.groups: list[tuple[int, int]] = header["groups"]
        self.judged: set[int] = set(header["judged"])
        self.extras: dict[str, list[tuple[int, float]]] = {}
        self.failed: dict[int, RowStatus] = {}
        self.texts: dict[bool, tuple[Sequence[str | Chat], Sequence[str | Chat]]] = {}
        self._selected: dict[str, dict[str, list[Any]]] = {}

    def decode(self, tokenizer: decode.Tokenizer | None, *, skip_special_tokens: bool) -> None:
        """Decodes prompts and completions once for this option."""
        if skip_special_tokens in self.texts:
            return
        completions: Sequence[str | Chat] | None = self.completions
        if completions is None:
            completions = _decode(tokenizer, self.ids, skip_special_tokens=skip_special_tokens)
        if self.prefixes is not None:
            completions = [
                prefix + text if isinstance(text, str) else text
                for prefix, text in zip(self.prefixes, completions, strict=True)
            ]
        prompts: Sequence[str | Chat] | None = self.prompts
        if prompts is None:
            prompts = _decode(
                tokenizer, self.prompt_ids or [], skip_special_tokens=skip_special_tokens
            )
        self.texts[skip_special_tokens] = (prompts, completions)

    def arguments(self, function: registry.RewardFn, row: int) -> dict[str, Any]:
        """Builds the keyword arguments of a function for one row."""
        columns = self._columns_of(function)
        prompts, completions = self.texts[function.config.skip_special_tokens]
        given = self.given
        if function.needs_row:
            self._check_ids(function)
            log = functools.partial(self._log, row)
            ids = self.ids[row].tolist()
            given = {**given, "log_extra": log, "log_metric": log, "completion_ids": ids}
        return function.arguments(row, prompts, completions, columns, given)

    def group_arguments(self, function: registry.RewardFn, start: int, end: int) -> dict[str, Any]:
        """Builds the keyword arguments of a function for the rows of a group."""
        prompts, completions = self.texts[function.config.skip_special_tokens]
        self._check_ids(function)
        log = functools.partial(self._log_group, start)
        ids = [row.tolist() for row in self.ids[start:end]] if function.needs_row else []
        given = {**self.given, "log_extra": log, "log_metric": log, "completion_ids": ids}
        columns = self._columns_of(function)
        return function.group_arguments(start, end, prompts, completions, columns, given)

    def _columns_of(self, function: registry.RewardFn) -> dict[str, list[Any]]:
        name = function.config.name
        if (columns := self._selected.get(name)) is None:
            columns = self._selected[name] = function.select(self.columns)
        return columns

    def _check_ids(self, function: registry.RewardFn) -> None:
        if not self._has_ids and "completion_ids" in function.given:
            raise ValueError("it takes completion_ids, and the row has a text instead")

    def _log_group(self, start: int, name: str, values: Any) -> None:
        """Keeps a value for each row of a group."""
        if isinstance(values, list | tuple):
            for row, value in enumerate(values, start):
                self._log(row, name, value)

    def _log(self, row: int, name: str, value: Any) -> None:
        """Keeps a number for the extra columns; they hold no texts, which are left out."""
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return
        self.extras.setdefault(str(name)[:MAX_NAME_CHARACTERS], []).append((row, number))


def _decode(
    tokenizer: decode.Tokenizer | None, rows: list[array.array[int]], *, skip_special_tokens: bool
) -> list[str]:
    if tokenizer is None:
        raise ValueError("there is no tokenizer")
    return tokenizer.decode(rows, skip_special_tokens=skip_special_tokens)
