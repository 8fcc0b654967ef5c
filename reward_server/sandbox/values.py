# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Plain data as JSON, exactly: what crosses between code under test and those who judge it.

Only built-in types come out, whatever went in: an instance of a subclass is taken for the data
of its base, read by the methods of the base, so that what it overrides does not matter.
Decoding runs no code of the sender, which may send anything.
"""

from __future__ import annotations

import collections
import decimal
import fractions
import json
from collections.abc import Callable
from typing import Any

_SMALL = 2**53
_TAG = "type"
_MAX_FRACTION_DIGITS = 2**16
Reference = Callable[[Any], Any]

# Captured before any other code runs, which may replace the names.
_isinstance, _type = isinstance, type
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decoder = json.JSONDecoder()


class NotPlainError(Exception):
    """A value is no plain data; the message names its type."""


def dumps(value: Any) -> bytes:
    """Writes a message."""
    return _dumps(value).encode("ascii")


def loads(data: bytes | bytearray) -> Any:
    """Reads a message.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return _decoder.decode(bytes(data).decode("ascii"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def encode(value: Any, refer: Reference | None = None) -> Any:
    """Turns a value into JSON types.

    Args:
        value: what to encode.
        refer: turns what is no plain data into JSON types, or raises NotPlainError.

    Raises:
        NotPlainError: there is no plain form.
        RecursionError: it holds itself, or is nested too deep.
    """
    if value is None or value is True or value is False:
        return value
    for base, write in _WRITERS:
        if _isinstance(value, base):
            return write(value, refer)
    if refer is not None:
        return refer(value)
    raise NotPlainError(f"{_type(value).__name__} is no plain data")


def _write_int(value: Any, _: Reference | None) -> Any:
    number = int.__pos__(value)
    return number if -_SMALL < number < _SMALL else {_TAG: "int", "value": hex(number)}


def _write_list(value: Any, refer: Reference | None) -> Any:
    return [encode(item, refer) for item in list.__iter__(value)]


def _write_dict(value: Any, refer: Reference | None) -> Any:
    items = [[encode(k, refer), encode(v, refer)] for k, v in dict.items(value)]
    return {_TAG: "dict", "value": items}


def _write_complex(value: Any, _: Reference | None) -> Any:
    number = complex.__pos__(value)
    return {_TAG: "complex", "value": [number.real, number.imag]}


def _write_bytes(value: Any, _: Reference | None) -> Any:
    name = "bytes" if _isinstance(value, bytes) else "bytearray"
    return {_TAG: name, "value": _type(value).hex(value)}


def _write_range(value: Any, _: Reference | None) -> Any:
    return {_TAG: "range", "value": [hex(n) for n in (value.start, value.stop, value.step)]}


def _write_fraction(value: Any, _: Reference | None) -> Any:
    return {_TAG: "fraction", "value": [hex(value._numerator), hex(value._denominator)]}  # noqa: SLF001


def _writer(name: str, base: Any) -> Callable[[Any, Reference | None], Any]:
    iterate = base.__iter__

    def write(value: Any, refer: Reference | None) -> Any:
        return {_TAG: name, "value": [encode(item, refer) for item in iterate(value)]}

    return write


_WRITERS: tuple[tuple[Any, Callable[[Any, Reference | None], Any]], ...] = (
    (str, lambda value, _: str.__str__(value)),
    (int, _write_int),
    (float, lambda value, _: float.__pos__(value)),
    (list, _write_list),
    (dict, _write_dict),
    (tuple, _writer("tuple", tuple)),
    (set, _writer("set", set)),
    (frozenset, _writer("frozenset", frozenset)),
    (collections.deque, _writer("deque", collections.deque)),
    (complex, _write_complex),
    (bytes, _write_bytes),
    (bytearray, _write_bytes),
    (range, _write_range),
    (decimal.Decimal, lambda value, _: {_TAG: "decimal", "value": decimal.Decimal.__str__(value)}),
    (fractions.Fraction, _write_fraction),
)


def _read_dict(items: Any, resolve: Reference | None) -> Any:
    return {decode(k, resolve): decode(v, resolve) for k, v in items}


def _reader(base: Any) -> Callable[[Any, Reference | None], Any]:
    return lambda items, resolve: base([decode(item, resolve) for item in items])


def _integers(texts: Any) -> list[int]:
    return [int(text, 16) for text in texts]


def _fraction(top: str, bottom: str) -> fractions.Fraction:
    # Nothing can end the search for the common divisor, and its time grows with the square.
    if max(len(top), len(bottom)) > _MAX_FRACTION_DIGITS:
        raise ValueError(f"a fraction of more than {_MAX_FRACTION_DIGITS} digits")
    return fractions.Fraction(int(top, 16), int(bottom, 16))


_READERS: dict[str, Callable[[Any, Reference | None], Any]] = {
    "int": lambda value, _: int(value, 16),
    "dict": _read_dict,
    "tuple": _reader(tuple),
    # Item by item, so that a clock can end it: equal hashes take the square of their number.
    "set": lambda items, resolve: {decode(item, resolve) for item in items},
    "frozenset": lambda items, resolve: frozenset({decode(item, resolve) for item in items}),
    "deque": _reader(collections.deque),
    "complex": lambda value, _: complex(*value),
    "bytes": lambda value, _: bytes.fromhex(value),
    "bytearray": lambda value, _: bytearray.fromhex(value),
    "range": lambda value, _: range(*_integers(value)),
    "decimal": lambda value, _: decimal.Decimal(value),
    "fraction": lambda value, _: _fraction(*value),
}


def decode(value: Any, resolve: Reference | None = None) -> Any:
    """Turns JSON types back into the value.

    Args:
        value: what `encode` made, or what somebody hostile sent.
        resolve: turns what `refer` made back.

    Raises:
        ValueError: it is nothing that `encode` makes.
    """
    if _type(value) is list:
        return [decode(item, resolve) for item in value]
    if _type(value) is not dict:
        return value
    try:
        read = _READERS.get(value[_TAG])
        if read is not None:
            return read(value["value"], resolve)
    except (TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no plain data: {error}") from None
    if resolve is not None:
        return resolve(value)
    raise ValueError(f"no plain data: {value[_TAG]}")
