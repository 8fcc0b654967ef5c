# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Which reward functions score a row, by a column of the dataset. Used in child processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reward_server.config import RewardFnConfig


class Routes:
    """Sends rows to functions by their `sources`; without a column every function scores all.

    Args:
        column: the dataset column, or "".
        functions: in the order of the reward matrix.
    """

    def __init__(self, column: str, functions: Sequence[RewardFnConfig]) -> None:
        self._column = column
        self._sources = [frozenset(function.sources) for function in functions]
        self._known = frozenset().union(*self._sources)

    def sends(self, columns: dict[str, list[Any]], row: int, function: int) -> bool:
        """Says whether a function, by its number, scores a row."""
        if not self._column:
            return True
        value, sources = columns[self._column][row], self._sources[function]
        # A row of no known source is scored by none: it has an error already.
        return isinstance(value, str) and value in (sources or self._known)

    def unknown(self, columns: dict[str, list[Any]]) -> Iterator[int]:
        """Finds the rows whose source no function has."""
        if self._column:
            for row, value in enumerate(columns[self._column]):
                if not isinstance(value, str) or value not in self._known:
                    yield row

    def problem(self, columns: dict[str, list[Any]], row: int) -> str:
        """Says what is wrong with a row of no known source."""
        value = columns[self._column][row]
        return f"`{self._column}` must be one of {sorted(self._known)}, got {value!r}"
