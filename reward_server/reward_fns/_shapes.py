# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The shapes of answers: number, tuple, set, interval, matrix, ...

What has a different shape is a different answer, whatever numbers stand in it.
"""

from __future__ import annotations

import dataclasses

from reward_server.reward_fns._expression import Tree


@dataclasses.dataclass(frozen=True, slots=True)
class Expression:
    """A number or an algebraic expression, with its unit."""

    tree: Tree
    unit: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Numeral:
    """A number in another base, `52_8`."""

    digits: str
    base: int


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Words, in lower case."""

    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Several things.

    Attributes:
        kind: "list" or "set", whose order is free, "union" of sets, or the two brackets of a tuple
            or interval, as in "[)", or "ratio".
        items: the things.
    """

    kind: str
    items: tuple[Shape, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of a matrix or vector."""

    rows: tuple[tuple[Shape, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """A value with the name that it was given, `x = 5`."""

    name: str
    value: Shape


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """An equation or inequality; "<" and "<=" only, the other two are turned round."""

    sign: str
    left: Tree
    right: Tree


@dataclasses.dataclass(frozen=True, slots=True)
class Time:
    """A time of day, or a ratio that is written like one: `2:30`.

    Attributes:
        hour: 0 to 24, as written.
        minute: 0 to 59.
        half: "a" or "p" for the half of the day, or "".
    """

    hour: int
    minute: int
    half: str

    def is_same(self, other: Time) -> bool:
        """Whether the other is this time; a half that only one of the two names is dropped."""
        if self.minute != other.minute:
            return False
        if self.half and other.half:
            return self._in_day() == other._in_day()
        return self.hour == other.hour or (
            bool(self.half or other.half) and self._in_day() == other._in_day()
        )

    def _in_day(self) -> int:
        return self.hour % 12 + 12 * (self.half == "p") if self.half else self.hour


Shape = Expression | Numeral | Text | Group | Matrix | Named | Relation | Time
