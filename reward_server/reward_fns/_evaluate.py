# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluates expression trees: rationals exactly, the rest to 200 digits, within bounds of size."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath

from reward_server.reward_fns._expression import Tree
from reward_server.reward_fns._normalize import TooBig, Unreadable

_DIGITS = 200
_MAX_BITS = 100_000
_MAX_BITS_AT_POINT = 20_000
_MAX_WORK = 20  # so many numbers of the largest size
_MAX_MAGNITUDE = 2_000
_MAX_FACTORIAL = 3_000

mp = mpmath.mp.clone()
mp.dps = _DIGITS
ZERO = mp.mpf(10) ** -170


class Undefined(ArithmeticError):  # noqa: N818 - a value that does not exist is no error
    """An expression has no value here."""


def symbols(tree: Tree) -> set[str]:
    """Returns the names of the variables of a tree."""
    if tree[0] == "sym":
        return {tree[1]}
    return set().union(*(symbols(part) for part in tree[1:] if isinstance(part, tuple)))


def value(tree: Tree) -> Any:
    """Returns the value of a tree without variables: a Fraction, or a real or complex number.

    Raises:
        Undefined: it has none.
        TooBig: it is not computed.
    """
    return run(tree, {}, is_complex=True)


def rational(tree: Tree) -> Fraction:
    """Returns the value of a tree without variables, to 200 digits if it is irrational.

    Raises:
        Undefined: it is no finite real number.
        TooBig: it is not computed.
    """
    found = value(tree)
    if isinstance(found, Fraction):
        return found
    found = real(found)
    if mp.isinf(found) or abs(mp.mag(found)) > _MAX_MAGNITUDE:
        raise Undefined("infinite")
    sign, mantissa, exponent, _ = found._mpf_
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -exact if sign else exact


def divide(a: Any, b: Any) -> Any:
    """Returns the quotient, exact for two rationals."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    return to_float(a) / to_float(b)


def to_float(a: Any) -> Any:
    """Returns a value as a number of mpmath."""
    return mp.mpf(a.numerator) / a.denominator if isinstance(a, Fraction) else a


def real(a: Any) -> Any:
    """Returns a value as a real number.

    Raises:
        Undefined: it is not real.
    """
    a = to_float(a)
    if isinstance(a, mp.mpc):
        if abs(a.imag) > ZERO:
            raise Undefined("complex")
        a = a.real
    return a


def run(tree: Tree, point: dict[str, Fraction], *, is_complex: bool) -> Any:
    """Returns the value of a tree at a point.

    Args:
        tree: the expression.
        point: values of its variables.
        is_complex: whether values that are not real are allowed on the way.

    Raises:
        Undefined: it has no value there.
        TooBig: it is not computed.
    """
    try:
        return _Evaluator(point, is_complex=is_complex).run(tree)
    except (ZeroDivisionError, ValueError, OverflowError, mpmath.libmp.NoConvergence) as error:
        if isinstance(error, Unreadable):
            raise
        raise Undefined(str(error)) from None


class _Evaluator:
    def __init__(self, point: dict[str, Fraction], *, is_complex: bool) -> None:
        self._point = point
        self._is_complex = is_complex
        self._max_bits = _MAX_BITS_AT_POINT if point else _MAX_BITS
        self._work = 0

    def run(self, tree: Tree) -> Any:
        result = getattr(self, "_" + tree[0])(*tree[1:])
        if isinstance(result, Fraction):
            bits = max(result.numerator.bit_length(), result.denominator.bit_length())
            self._work += bits
            if bits > self._max_bits or self._work > _MAX_WORK * self._max_bits:
                raise TooBig("too many digits")
            return result
        if isinstance(result, mp.mpc):
            if result.imag == 0 or abs(result.imag) < ZERO:
                result = result.real
            elif not self._is_complex:
                raise Undefined("complex")
        if mp.isnan(result):
            raise Undefined("not a number")
        return result

    def _num(self, number: Fraction, _is_decimal: bool) -> Any:
        return number

    def _sym(self, name: str) -> Any:
        return self._point[name]

    def _const(self, name: str) -> Any:
        if name == "inf":
            return mp.inf
        return {"pi": mp.pi, "e": mp.e, "i": mp.j}[name] * mp.one

    def _neg(self, tree: Tree) -> Any:
        return -self.run(tree)

    def _add(self, left: Tree, right: Tree) -> Any:
        a, b = self.run(left), self.run(right)
        return (
            a + b
            if isinstance(a, Fraction) and isinstance(b, Fraction)
            else to_float(a) + to_float(b)
        )

    def _mul(self, left: Tree, right: Tree) -> Any:
        a, b = self.run(left), self.run(right)
        return (
            a * b
            if isinstance(a, Fraction) and isinstance(b, Fraction)
            else to_float(a) * to_float(b)
        )

    def _div(self, left: Tree, right: Tree) -> Any:
        a, b = self.run(left), self.run(right)
        if b == 0:
            raise Undefined("division by zero")
        return divide(a, b)

    def _pow(self, base: Tree, exponent: Tree) -> Any:
        # x^{1/3} has real values for negative x; (-1)^n has none between the integers.
        return self._power(self.run(base), self.run(exponent), odd_root=not symbols(exponent))

    def _power(self, a: Any, b: Any, *, odd_root: bool = True) -> Any:
        if a == 0 and (isinstance(b, mp.mpc) or b <= 0):
            raise Undefined("power of zero")
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            if b.denominator == 1:
                bits = max(a.numerator.bit_length(), a.denominator.bit_length()) - 1
                if abs(b) * max(bits, 1) > self._max_bits and abs(a) != 1:
                    raise TooBig("power")
                return a ** int(b) if abs(a) != 1 else (a if b % 2 else Fraction(1))
            if a < 0 and not odd_root:
                raise Undefined("root of a negative number")
            if (root := _exact_root(a, b.denominator)) is not None:
                return self._power(root, Fraction(b.numerator))
            if a < 0 and b.denominator % 2 and not self._is_complex:
                power = self._power(to_float(-a), to_float(b))
                return -power if b.numerator % 2 else power
        a, b = to_float(a), to_float(b)
        is_finite = a != 0 and not mp.isinf(a) and not mp.isinf(b)
        if is_finite and abs(b) * (1 + abs(mp.log(abs(a)))) > _MAX_BITS:
            raise TooBig("power")
        return mp.power(a, b)

    def _root(self, tree: Tree, degree: Tree) -> Any:
        a, n = self.run(tree), self.run(degree)
        if not isinstance(n, Fraction) or n.denominator != 1 or not 1 <= n <= 1000:
            raise Undefined("degree of a root")
        n = int(n)
        if isinstance(a, Fraction) and (root := _exact_root(a, n)) is not None:
            return root
        a = to_float(a)
        if not isinstance(a, mp.mpc) and a < 0 and n % 2:
            return -mp.root(-a, n)
        return mp.root(a, n)

    def _fact(self, tree: Tree) -> Any:
        n = self.run(tree)
        if not isinstance(n, Fraction) or n.denominator != 1 or n < 0:
            raise Undefined("factorial")
        if n > _MAX_FACTORIAL:
            raise TooBig("factorial")
        return Fraction(math.factorial(int(n)))

    def _binom(self, top: Tree, bottom: Tree) -> Any:
        n, k = self.run(top), self.run(bottom)
        if not all(isinstance(x, Fraction) and x.denominator == 1 and x >= 0 for x in (n, k)):
            raise Undefined("binomial")
        if n > _MAX_FACTORIAL:
            raise TooBig("binomial")
        return Fraction(math.comb(int(n), int(k)))

    def _log(self, tree: Tree, base: Tree) -> Any:
        a, b = to_float(self.run(tree)), to_float(self.run(base))
        if a == 0 or b in (0, 1):
            raise Undefined("logarithm")
        return mp.log(a) / mp.log(b)

    def _func(self, name: str, tree: Tree) -> Any:
        a = self.run(tree)
        if name == "abs":
            return abs(a)
        if name in ("floor", "ceil"):
            return Fraction(int(getattr(mp, name)(real(a))))
        a = to_float(a)
        if not mp.isinf(a) and mp.mag(a) > (20 if name == "exp" else _MAX_MAGNITUDE):
            raise TooBig(name)
        if name in ("ln", "log", "lg") and a == 0:
            raise Undefined("logarithm")
        call = getattr(mp, _MPMATH.get(name, name), None)
        if call is None:
            raise Undefined(name)
        return call(a)


_MPMATH = {
    "log": "ln", "lg": "log10", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arccot": "acot", "arcsec": "asec", "arccsc": "acsc", "arsinh": "asinh", "arcosh": "acosh",
    "artanh": "atanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip


def _exact_root(a: Fraction, n: int) -> Fraction | None:
    if a < 0:
        if n % 2 == 0:
            return None
        root = _exact_root(-a, n)
        return None if root is None else -root
    top, bottom = _integer_root(a.numerator, n), _integer_root(a.denominator, n)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(a: int, n: int) -> int | None:
    if n == 2:
        root = math.isqrt(a)
        return root if root * root == a else None
    if a < 2:
        return a
    if a.bit_length() > 2_000 or n > 64:
        return None
    root = round(int(mp.floor(mp.root(a, n) + mp.mpf("0.5"))))
    return root if root**n == a else None
