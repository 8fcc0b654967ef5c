# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares two answers: first their shapes, then the values in them."""

from __future__ import annotations

from fractions import Fraction

from reward_server.reward_fns import _equality, _evaluate
from reward_server.reward_fns._expression import Tree
from reward_server.reward_fns._shapes import (
    Expression,
    Group,
    Matrix,
    Named,
    Relation,
    Shape,
    Text,
    Time,
)

_UNORDERED = ("list", "set", "union")
_MAX_PAIRS = 1_000
_ZERO: Tree = ("num", Fraction(0), False)


def same(gold: Shape, answer: Shape, relative_tolerance: float) -> bool:
    """Says whether an answer is the reference.

    Raises:
        Unreadable: a number in one of the two is too large to be computed.
    """
    return _Comparison(relative_tolerance).shapes(gold, answer)


class _Comparison:
    def __init__(self, relative_tolerance: float) -> None:
        self._tolerance = relative_tolerance

    def shapes(self, gold: Shape, answer: Shape) -> bool:  # noqa: PLR0911 - a return a shape
        if isinstance(gold, Named) and isinstance(answer, Named):
            if gold.name != answer.name:
                return self._as_relations(gold, answer)
            return self.shapes(gold.value, answer.value)
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return self._as_relations(gold, answer)
        # A name that only one of the two gives is dropped.
        gold = gold.value if isinstance(gold, Named) else gold
        answer = answer.value if isinstance(answer, Named) else answer
        if isinstance(gold, Expression) and isinstance(answer, Expression):
            return self._expressions(gold, answer)
        if isinstance(gold, Group) and isinstance(answer, Group):
            return self._groups(gold, answer)
        if isinstance(gold, Time) and isinstance(answer, Time):
            return gold.is_same(answer)
        if isinstance(gold, Matrix) and isinstance(answer, Matrix):
            return len(gold.rows) == len(answer.rows) and all(
                self._ordered(a, b) for a, b in zip(gold.rows, answer.rows, strict=True)
            )
        return type(gold) is type(answer) and gold == answer

    def _expressions(self, gold: Expression, answer: Expression) -> bool:
        units = {gold.unit, answer.unit}
        if "" not in units and len(units) > 1 and not _is_temperature(units):
            return False
        if self._values(gold.tree, answer.tree):
            return True
        if len(units) > 1 and "percent" in units:
            # 28 % may be written as 28 and as 0.28.
            left, right = (
                ("div", x.tree, ("num", Fraction(100), False)) if x.unit == "percent" else x.tree
                for x in (gold, answer)
            )
            return self._values(left, right)
        return False

    def _values(self, gold: Tree, answer: Tree) -> bool:
        return _equality.same_value(gold, answer, self._tolerance)

    def _groups(self, gold: Group, answer: Group) -> bool:  # noqa: PLR0911 - a return a kind
        if gold.kind == answer.kind == "ratio":
            return self._ratios(gold.items, answer.items)
        kinds = {gold.kind, answer.kind}
        if kinds == {"list", "()"} and all(
            isinstance(item, Named)
            for group in (gold, answer)
            if group.kind == "list"
            for item in group.items
        ):
            # `x = 1, y = 2` is the point (1, 2).
            return self._ordered(gold.items, answer.items)
        if gold.kind not in _UNORDERED or answer.kind not in _UNORDERED:
            return gold.kind == answer.kind and self._ordered(gold.items, answer.items)
        if "union" in (gold.kind, answer.kind) and gold.kind != answer.kind:
            return False
        left, right = gold.items, answer.items
        if "set" in (gold.kind, answer.kind):
            left, right = self._distinct(left), self._distinct(right)
        if _has_dots(left) or _has_dots(right):
            return self._ordered(left, right)
        if _is_named(left) != _is_named(right):
            return self._ordered(left, right)
        return self._matched(left, right)

    def _ratios(self, gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
        trees = [[x.tree for x in items if isinstance(x, Expression)] for items in (gold, answer)]
        left, right = trees
        if any(all(self._values(tree, _ZERO) for tree in side) for side in trees):
            return False  # 0:0 is in every ratio
        return len(left) == len(right) == len(gold) == len(answer) and all(
            self._values(("mul", a, right[0]), ("mul", b, left[0]))
            for a, b in zip(left, right, strict=True)
        )

    def _ordered(self, gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
        return len(gold) == len(answer) and all(
            self.shapes(a, b) for a, b in zip(gold, answer, strict=True)
        )

    def _matched(self, gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
        if len(gold) != len(answer) or len(gold) ** 2 > _MAX_PAIRS:
            return len(gold) == len(answer) and self._ordered(gold, answer)
        left = list(answer)
        for item in gold:
            found = next((i for i, other in enumerate(left) if self.shapes(item, other)), None)
            if found is None:
                return False
            del left[found]
        return True

    def _distinct(self, items: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(items) ** 2 > _MAX_PAIRS:
            return items
        kept: list[Shape] = []
        for item in items:
            if not any(self.shapes(item, other) for other in kept):
                kept.append(item)
        return tuple(kept)

    def _as_relations(self, gold: Shape, answer: Shape) -> bool:
        left, right = _relation(gold), _relation(answer)
        if left is None or right is None or left.sign != right.sign:
            return False
        a, b = _difference(left), _difference(right)
        if not _evaluate.symbols(a) or _evaluate.symbols(a) != _evaluate.symbols(b):
            return False
        return _equality.proportional(a, b, positive=left.sign in ("<", r"\le"))


def _relation(shape: Shape) -> Relation | None:
    if isinstance(shape, Relation):
        return shape
    if isinstance(shape, Named) and isinstance(shape.value, Expression) and len(shape.name) == 1:
        return Relation("=", ("sym", shape.name), shape.value.tree)
    return None


def _difference(relation: Relation) -> Tree:
    return ("add", relation.left, ("neg", relation.right))


def _is_temperature(units: set[str]) -> bool:
    return "degree" in units and all(unit.startswith("degree") for unit in units)


def _has_dots(items: tuple[Shape, ...]) -> bool:
    return Text("...") in items


def _is_named(items: tuple[Shape, ...]) -> bool:
    return any(isinstance(item, Named) for item in items)
