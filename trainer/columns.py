# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of a dataset: checked, and made columns with a plain value for each prompt. No JAX.

Grain batches a column of lists as a list of arrays, one for each place in the lists, and a column
of dicts as a dict of arrays. Those are turned back into rows where no other reading is possible.

Legend: b prompts of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.values import (
    MAX_DEPTH,
    ValueRefused,
    check_text,
    column_error,
    is_array,
    plain,
    plain_column,
    wire_bytes,
)

Columns = dict[str, NDArray[np.object_]]

# A row travels in one message of at most 64 MiB, with its ids.
MAX_ROW_BYTES = 48 * 2**20
# What the learner knows of each prompt travels with it: its number in the run, and the tokens of
# the longest prompt of its batch, over all processes.
PROMPT_NUMBER, LONGEST_PROMPT = "_prompt_number", "_longest_prompt"
# Reward functions get something else by these names, or Tunix does.
RESERVED = (
    *("prompt", "completion", "completions", "completion_ids", "mode", "step"),
    *("log_extra", "log_metric", "trajectory_ids", PROMPT_NUMBER, LONGEST_PROMPT),
)
_BY_ROWS = "batch(n, batch_fn=lambda rows: {k: [row[k] for row in rows] for k in rows[0]})"
_CHAT = (
    "Apply the chat template in the dataset:"
    " tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)."
)


class BatchReader:
    """Reads the batches of one dataset, all in the same way."""

    def __init__(self) -> None:
        """Has seen no batch."""
        self._names: set[str] | None = None
        # Which columns lie by rows and which by places within the rows, where it was certain.
        self._by_rows: dict[str, bool] = {}

    def read(self, batch: Any) -> Columns:
        """Checks a batch.

        Args:
            batch: dict of columns with "prompts", each with a value for each prompt.

        Returns:
            For each column a 1-D object array of b plain values.

        Raises:
            ValueError: names the column, what it must be, what it is, and the remedy.
        """
        prompts = self._prompts(batch)
        columns = {"prompts": object_array(prompts)}
        sizes = np.zeros(len(prompts), np.int64)
        for name, values in batch.items():
            if name == "prompts":
                continue
            _check_name(name)
            rows = plain_column(name, self._rows(name, values, len(prompts)))
            of_column = np.array([wire_bytes(value) for value in rows], np.int64)
            sizes += of_column
            if sizes.max() > MAX_ROW_BYTES:
                row = int(sizes.argmax())
                raise ValueError(
                    f"the columns of a row must have at most {MAX_ROW_BYTES} bytes, got"
                    f" {sizes[row]} in row {row}, {of_column[row]} of them in column {name!r}."
                    " Shorten it, or give a path and read the file in the reward function."
                )
            columns[name] = object_array(rows)
        names = set(columns)
        if self._names is not None and names != self._names:
            raise ValueError(
                f"every batch must have the columns of the first, {sorted(self._names)},"
                f" got {sorted(names)}."
            )
        self._names = names
        return columns

    def _prompts(self, batch: Any) -> list[str]:
        if not isinstance(batch, Mapping):
            got = type(batch).__name__
            if isinstance(batch, list | tuple) and batch:
                got = f"a {got} of {type(batch[0]).__name__}"
            raise ValueError(
                f"a batch must be a dict of columns, got {got}. Batch the dataset by columns:"
                f" {_BY_ROWS} in Grain, .batch(n) in Hugging Face datasets."
            )
        if "prompts" not in batch:
            raise ValueError(
                f"a batch must have the column 'prompts', got {sorted(map(str, batch))}."
            )
        values = batch["prompts"]
        if isinstance(values, str | bytes | np.generic):
            raise ValueError(
                f"column 'prompts' must be a list of texts, got one {type(values).__name__}."
                " Batch the dataset."
            )
        prompts = [_prompt(value, row) for row, value in enumerate(self._rows("prompts", values))]
        if not prompts:
            raise ValueError("a batch must hold prompts, got none. Leave empty batches out.")
        return prompts

    def _rows(self, name: str, values: Any, b: int | None = None) -> Sequence[Any]:
        """Finds the value of each prompt in a column."""
        if is_array(values):
            values = np.asanyarray(values)
        scalar = isinstance(values, np.ndarray) and not values.ndim
        if isinstance(values, Mapping):
            if b is not None and _lies_by_places(values, b):
                return _turned(values, b)
            raise ValueError(
                f"column {name!r} must be a list with one value per prompt, got a dict."
                f" Give a list of dicts: {_BY_ROWS} in Grain."
            )
        if scalar or isinstance(values, str | bytes | set) or not hasattr(values, "__getitem__"):
            raise ValueError(
                f"column {name!r} must be a list with one value per prompt, got one"
                f" {type(values).__name__}. Repeat it for each prompt, or leave it out."
            )
        if isinstance(values, np.ndarray):
            rows: Sequence[Any] = list(values)
        else:
            rows = list(values)
            if b is not None and _lies_by_places(rows, b):
                if len(rows) != b:
                    self._by_rows[name] = False
                    return _turned(rows, b)
                return self._one_reading(name, rows)
        if b is not None and len(rows) != b:
            raise ValueError(
                f"column {name!r} must have one value per prompt ({b}), got {len(rows)}."
                f" If its values are lists, batch them by rows: {_BY_ROWS} in Grain."
            )
        self._by_rows.setdefault(name, True)
        return rows

    def _one_reading(self, name: str, rows: list[Any]) -> Sequence[Any]:
        """Chooses between two readings of b arrays with b values each."""
        turned = _turned(rows, len(rows))
        by_rows = self._by_rows.get(name)
        if by_rows is None:
            if plain_column(name, rows) == plain_column(name, turned):
                return rows
            raise ValueError(
                f"column {name!r} is a list of {len(rows)} arrays with {len(rows)} values each:"
                " whether an array is a row, or holds one value of every row as Grain's batches do,"
                f" can't be told. Batch lists by rows: {_BY_ROWS} in Grain; give arrays of rows as"
                " one array: np.stack(values)."
            )
        return rows if by_rows else turned


def object_array(values: Sequence[Any]) -> NDArray[np.object_]:
    """A 1-D array of Python values, so that Tunix repeats rows and not what is in them."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out


def _prompt(value: Any, row: int) -> str:
    if isinstance(value, str):
        try:
            check_text(value)
        except ValueRefused as error:
            raise column_error("prompts", row, error, rule="text") from None
        return str.__str__(value)
    remedy = "Make it text in the dataset."
    chat = value[0] if isinstance(value, list | tuple | np.ndarray) and len(value) else value
    if isinstance(chat, Mapping):
        remedy = _CHAT
    elif isinstance(value, bytes):
        remedy = "Decode it in the dataset: value.decode('utf-8')."
    raise ValueError(
        f"column 'prompts' must hold text, got {type(value).__name__} in row {row}. {remedy}"
    )


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"columns must have names that are text, got {name!r}.")
    try:
        plain(name)
    except ValueRefused as error:
        raise ValueError(f"columns must have names that are text, got {error.got}.") from None
    if name in RESERVED:
        raise ValueError(
            f"column {name!r} must have another name: reward functions get something else by it."
            " Rename it, or leave it out."
        )


def _lies_by_places(tree: Any, b: int, depth: int = 0) -> bool:
    """Whether all that is in a column are arrays with a value for each of b prompts."""
    if depth > MAX_DEPTH:
        return False
    items = tree.values() if isinstance(tree, Mapping) else tree
    found = [item for item in items if item is not None]
    return bool(found) and all(
        _lies_by_places(item, b, depth + 1)
        if isinstance(item, Mapping | list | tuple)
        else is_array(item) and np.shape(item)[:1] == (b,)
        for item in found
    )


def _turned(tree: Any, b: int) -> list[Any]:
    """Rows of a column that lies by places."""
    return [_at(tree, row) for row in range(b)]


def _at(tree: Any, row: int) -> Any:
    if isinstance(tree, Mapping):
        return {key: _at(item, row) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [_at(item, row) for item in tree]
    return None if tree is None else np.asanyarray(tree)[row]
