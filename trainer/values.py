# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of dataset columns, as they travel: text, numbers, booleans, None, lists and dicts.

NumPy's and JAX's scalars and arrays become plain values, tuples become lists, and ints are exact
at any size up to 4,000 digits. What JSON would change or can't hold is refused: bytes, dates, sets,
dict keys that are no text. No JAX.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# Servers take documents of at most so many levels.
MAX_DEPTH = 64
# Python neither writes nor reads longer ones: 4,300 digits.
_MAX_INT_BITS = 14_000
_NUMBERS = "biuf"
_DOUBLE_BYTES = 8
_REFUSED_KINDS = "SMmc"
_REMEDIES = {
    "bytes": "Decode them: value.decode('utf-8').",
    "bytes_": "Decode them: value.decode('utf-8').",
    "bytearray": "Decode them: bytes(value).decode('utf-8').",
    "Decimal": "Use str(value) or float(value).",
    "Fraction": "Use str(value) or float(value).",
    "datetime": "Use value.isoformat().",
    "date": "Use value.isoformat().",
    "time": "Use value.isoformat().",
    "datetime64": "Use str(value).",
    "set": "Use sorted(value).",
    "frozenset": "Use sorted(value).",
}
_RULE = "text, numbers, booleans, None, or lists and dicts of them"
_ANY_REMEDY = "Make it such a value in the dataset, or leave the column out."


class ValueRefused(ValueError):  # noqa: N818 - it says what happened
    """A value can't travel.

    Attributes:
        got: what it is.
        remedy: what to do.
        place: where it is within the value of its row, "['tests'][0]" for example.
    """

    def __init__(self, got: str, remedy: str) -> None:
        super().__init__(got)
        self.got = got
        self.remedy = remedy
        self.place = ""


def plain(value: Any) -> Any:
    """Makes a value plain, whatever it is nested in.

    Raises:
        ValueRefused: it can't travel.
    """
    return _plain(value, 0)


def column_error(name: str, row: int, error: ValueRefused, rule: str = _RULE) -> ValueError:
    """Says which value of a column can't travel, and what to do."""
    place = f" at {error.place}" if error.place else ""
    return ValueError(
        f"column {name!r} must hold {rule}, got {error.got} in row {row}{place}. {error.remedy}"
    )


def plain_column(name: str, values: Sequence[Any], rows: Iterable[int] | None = None) -> list[Any]:
    """Makes the values of a column plain.

    Args:
        name: of the column.
        values: one for each row.
        rows: those to take; None for all.

    Raises:
        ValueError: names the column, the row, the type of the value and the remedy.
    """
    out = []
    for row in range(len(values)) if rows is None else rows:
        try:
            out.append(_plain(values[row], 0))
        except ValueRefused as error:
            raise column_error(name, row, error) from None
    return out


def wire_bytes(value: Any) -> int:
    """Bytes that a plain value takes in a message, roughly."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(json.dumps(value)) if isinstance(value, list | dict) else 8


def check_text(text: str) -> None:
    """Checks that a text can be encoded.

    Raises:
        ValueRefused: it holds half of a surrogate pair.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueRefused(
            f"text with a lone surrogate ({text[error.start]!a}, character {error.start})",
            "Half of a character was cut off or escaped wrongly; mend the text, or replace it:"
            " text.encode('utf-8', 'replace').decode().",
        ) from None


def is_array(value: Any) -> bool:
    """Whether a value is an array of some library, or a scalar of one."""
    return hasattr(value, "__array__") and not isinstance(value, type)


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | str | int | float):
        return _plain_scalar(value)
    if isinstance(value, Mapping):
        return _plain_dict(value, _deeper(depth))
    if isinstance(value, list | tuple):
        return _plain_list(value, _deeper(depth))
    if isinstance(value, bytes | bytearray) or not is_array(value):
        name = type(value).__name__
        raise ValueRefused(name, _REMEDIES.get(name, _ANY_REMEDY))
    return _plain_array(value, depth)


def _plain_scalar(value: Any) -> Any:
    """Makes a scalar, of a subclass perhaps, one of Python's own."""
    if isinstance(value, str):
        check_text(value)
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > _MAX_INT_BITS:
            raise ValueRefused(f"an int of {value.bit_length()} bits", "Use hex(value).")
        return int(value)
    return value


def _plain_dict(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    out = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueRefused(
                f"a dict with the key {key!r} of type {type(key).__name__}",
                "Keys must be text, which is what JSON makes of them: use str(key).",
            )
        try:
            check_text(key)
            out[str.__str__(key)] = _plain(item, depth)
        except ValueRefused as error:
            error.place = f"[{key!a}]{error.place}"
            raise
    return out


def _plain_list(value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    out = []
    for index, item in enumerate(value):
        try:
            out.append(_plain(item, depth))
        except ValueRefused as error:
            error.place = f"[{index}]{error.place}"
            raise
    return out


def _plain_array(value: Any, depth: int) -> Any:
    # A masked value becomes None.
    array = np.asanyarray(value)
    if array.dtype.kind in _REFUSED_KINDS or array.dtype.names:
        name = array.dtype.type.__name__
        raise ValueRefused(
            f"{type(value).__name__} of {array.dtype}" if array.ndim else name,
            _REMEDIES.get(name, _ANY_REMEDY),
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > _DOUBLE_BYTES:
        array = array.astype(np.float64)
    made = array.tolist()
    if array.dtype.kind in _NUMBERS and depth + array.ndim <= MAX_DEPTH:
        return made
    if not array.ndim and is_array(made):
        raise ValueRefused(type(value).__name__, _ANY_REMEDY)
    return _plain(made, depth)


def _deeper(depth: int) -> int:
    if depth == MAX_DEPTH:
        raise ValueRefused(
            f"values nested deeper than {MAX_DEPTH} levels", "Give them as text: json.dumps(value)."
        )
    return depth + 1
