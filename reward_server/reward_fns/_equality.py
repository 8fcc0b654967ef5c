# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Says whether two expressions have the same value.

With variables they have if they agree at points where both have a value over the reals (over the
complex numbers if `i` stands in one of them). Points have exact coordinates, the same every time.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from reward_server.reward_fns import _evaluate
from reward_server.reward_fns._evaluate import ZERO, Undefined, mp, symbols, value
from reward_server.reward_fns._expression import Tree, is_decimal
from reward_server.reward_fns._normalize import TooBig

RELATIVE_TOLERANCE = 1e-6
_POINTS = 16
# Beyond them numbers are large, which not every expression survives.
_SMALL = 12
_MIN_AGREEING = 4
_EQUAL = mp.mpf(10) ** -150


def same_value(left: Tree, right: Tree, relative_tolerance: float = RELATIVE_TOLERANCE) -> bool:
    """Says whether two trees have the same value for all values of their variables.

    Rationals must be equal. Real numbers must agree to 150 digits, or within `relative_tolerance`
    if one of the two is written as a decimal and the other is irrational.

    Raises:
        TooBig: one of the two is not computed.
    """
    if left == right:
        return True
    names = symbols(left) | symbols(right)
    if not names:
        try:
            return _close(left, right, value(left), value(right), relative_tolerance)
        except Undefined:
            return False
    is_complex = _has_i(left) or _has_i(right)
    agreeing = defined = 0
    for i in range(_POINTS):
        point = {name: _coordinate(name, i) for name in names}
        expected = _at(point, left, is_small=i < _SMALL, is_complex=is_complex)
        if expected is None:
            continue
        defined += 1
        found = _at(point, right, is_small=i < _SMALL, is_complex=is_complex)
        if found is None:
            continue
        if not _agree(expected, found):
            return False
        agreeing += 1
    return agreeing >= _MIN_AGREEING and 4 * agreeing >= defined


def _at(point: dict[str, Fraction], tree: Tree, *, is_small: bool, is_complex: bool) -> Any:
    """The value at a point, or None where it has none, or none that is worth its computation."""
    try:
        return _evaluate.run(tree, point, is_complex=is_complex)
    except Undefined:
        return None
    except TooBig:
        if is_small:
            raise
        return None


def proportional(left: Tree, right: Tree, *, positive: bool = False) -> bool:
    """Says whether one tree is a multiple of the other by a constant that is not zero."""
    names = symbols(left) | symbols(right)
    ratios: list[Any] = []
    for i in range(_SMALL):
        point = {name: _coordinate(name, i) for name in names}
        try:
            a = _evaluate.run(left, point, is_complex=False)
            b = _evaluate.run(right, point, is_complex=False)
        except Undefined:
            continue
        if _is_zero(a) and _is_zero(b):
            continue
        if _is_zero(a) or _is_zero(b):
            return False
        ratios.append(_evaluate.divide(a, b))
    if len(ratios) < _MIN_AGREEING or (positive and _compare(ratios[0]) < 0):
        return False
    return all(_agree(ratios[0], ratio) for ratio in ratios[1:])


def _coordinate(name: str, i: int) -> Fraction:
    # Positive and mixed reals, then positive integers for what has values there only, then large
    # numbers. Each name is negative at some points, and names are not negative together.
    rng = random.Random(f"{name}:{i}")  # noqa: S311 - points, no secrets
    is_negative = (i + random.Random(name).randrange(2)) % 2 == 1  # noqa: S311
    if i >= _SMALL:
        top = Fraction(rng.randint(60, 900), 7 if i % 4 < 2 else 1)
    elif i >= 8:
        return Fraction(rng.randint(1, 40))
    else:
        top = Fraction(rng.randint(30, 330), 97)
    return -top if i >= 4 and is_negative else top


def _close(left: Tree, right: Tree, a: Any, b: Any, relative_tolerance: float) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    if _agree(a, b):
        return True
    if is_decimal(left) != is_decimal(right):
        return bool(
            abs(_evaluate.to_float(a) - _evaluate.to_float(b))
            <= relative_tolerance * abs(_evaluate.to_float(a))
        )
    return False


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = _evaluate.to_float(a), _evaluate.to_float(b)
    if mp.isinf(a) or mp.isinf(b):
        return bool(a == b)
    if a == 0 or b == 0:
        return bool(abs(a - b) < ZERO)
    return bool(abs(a - b) <= _EQUAL * max(abs(a), abs(b)))


def _is_zero(a: Any) -> bool:
    return a == 0 if isinstance(a, Fraction) else bool(abs(a) < ZERO)


def _compare(a: Any) -> int:
    a = _evaluate.real(a)
    return int(a > 0) - int(a < 0)


def _has_i(tree: Tree) -> bool:
    return tree == ("const", "i") or any(_has_i(p) for p in tree[1:] if isinstance(p, tuple))
