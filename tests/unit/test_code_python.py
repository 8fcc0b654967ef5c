# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of what code_python does without running anything: code, tests and plain data."""

from __future__ import annotations

import collections
import decimal
import fractions
import json
import math
import time

import pytest

from reward_server.reward_fns.code_python import extract
from reward_server.sandbox import asserts, checks, syscalls, values
from reward_server.sandbox.checks import AssertTest, CallTest

FENCE = "```"


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (f"a\n{FENCE}python\nx = 1\n{FENCE}\nb", "x = 1\n"),
        (f"{FENCE}python\nx = 1\n{FENCE}\n{FENCE}python\nx = 2\n{FENCE}", "x = 2\n"),
        (f"{FENCE}Py\r\nx = 1\r\n{FENCE}\r\n", "x = 1\n"),
        (f"{FENCE} python3 title=x\nx = 1\n{FENCE}", "x = 1\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        (f"````python\nx = '''\n{FENCE}\n'''\n````", f"x = '''\n{FENCE}\n'''\n"),
        (f"{FENCE}\nx = 1\n{FENCE}", "x = 1\n"),
        (f"{FENCE}python\nx = 1\n{FENCE}\nOutput:\n{FENCE}\n1\n{FENCE}", "x = 1\n"),
        (f"{FENCE}python\nx = 1\n{FENCE}\n{FENCE}bash\nls\n{FENCE}", "x = 1\n"),
        (f"{FENCE}bash\nls\n{FENCE}", ""),
        (f"1. Do\n   {FENCE}python\n   if x:\n     y\n   {FENCE}", "if x:\n  y\n"),
        (f"<answer>{FENCE}python\nx = 1\n{FENCE}</answer>", "x = 1\n"),
        (f"{FENCE}python\nx = 1\n{FENCE}<|im_end|>", "x = 1\n"),
        (f"{FENCE}python\nx = 1\n", "x = 1\n\n"),
        (f"{FENCE}python\nx = 1<|im_end|>", "x = 1\n"),
        ("    return x\n", "    return x\n"),
        ("x = 1</s>", "x = 1"),
        (f"<think>\n{FENCE}python\nx = 1\n{FENCE}\n</think>\nDone.", "\nDone."),
        (f"<think>\n{FENCE}python\nx = 1\n{FENCE}\n", ""),
        (f"a</think>b</think>{FENCE}python\nx = 1\n{FENCE}", "x = 1\n"),
        ("", ""),
    ],
)
def test_extract(completion, code):
    """Where the code of a completion is."""
    assert extract(completion) == code


@pytest.mark.parametrize(
    "text",
    [
        *(" " * 10**6 + "x", "</s>" * 10**5, FENCE + "a" * 10**6 + "`", "`" * 10**6),
        *(FENCE + " " * 10**6 + "`", f"{FENCE}py\n" + "<a>" * 10**5 + "x", "<" * 10**6),
        f"{FENCE}py\n{FENCE}" + "<a>" * 10**5 + "x",
    ],
)
def test_extract_is_linear(text):
    """No text keeps the search busy."""
    started = time.monotonic()
    extract(text)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 2**70, -(2**53), 1.5, -0.0, math.inf, 1j, "é\ud800\n", b"\x00"),
        *([1, [2]], (1, (2,)), {1: {2}, (1, 2): [None]}, {1, "a"}, frozenset({1}), range(1, 9, 2)),
        *(decimal.Decimal("1.10"), fractions.Fraction(1, 3), collections.deque([1, 2])),
        bytearray(b"x"),
    ],
)
def test_values_come_back(value):
    """Plain data is the same, with the same type, after JSON."""
    back = values.decode(values.loads(values.dumps(values.encode(value))))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_values_lose_their_class():
    """An instance of a subclass becomes the data of its base, whatever it overrides."""

    class Number(int):
        def __eq__(self, other):
            return True

        def __repr__(self):
            return "4"

        __hash__ = int.__hash__

    class Items(list):
        def __iter__(self):
            return iter([4])

    back = values.decode(values.loads(values.dumps(values.encode([Number(0), Items([1])]))))
    assert back == [0, [1]]
    assert [type(item) for item in back] == [int, list]
    with pytest.raises(values.NotPlainError, match="object is no plain data"):
        values.encode([object()])


@pytest.mark.parametrize(
    "text",
    [
        *('{"type": "function", "value": ""}', '{"type": "set", "value": [[1]]}', '{"a": 1}'),
        *('{"type": "int", "value": 1}', '{"type": [], "value": 1}', '{"type": "dict"}'),
        '{"type": "range", "value": ["0x1", "0x2", "0x0"]}',
    ],
)
def test_forged_values_are_refused(text):
    """What nobody encodes is not decoded."""
    with pytest.raises(ValueError, match=r"plain data|range|invalid literal"):
        values.decode(json.loads(text))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("assert f(1, x=[2]) == (3,)", ("f", [1], {"x": [2]}, (3,))),
        ("assert -3 == f(), 'message'", ("f", [], {}, -3)),
        ("assert S().f('a') == {1: 2}", ("S.f", ["a"], {}, {1: 2})),
        ("assert f(g(1)) == 2", None),
        ("assert f(1) == g(1)", None),
        ("assert f(*[1]) == 1", None),
        ("assert f(**{}) == 1", None),
        ("assert f(1) == 1 == 1", None),
        ("assert f(1) is True", None),
        ("assert f(1) == 1\nassert f(2) == 2", None),
    ],
)
def test_equations(code, expected):
    """Which asserts need no code of theirs to be run."""
    found = asserts.equation(code)
    if expected is None:
        assert found is None
        assert isinstance(checks.read([code])[0], AssertTest)
    else:
        assert (found.target, found.arguments, found.keywords, found.expected) == expected
        assert isinstance(checks.read([code])[0], CallTest)


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ("assert abs(f(x) - 1) < y", ["f", "x", "y"]),
        ("x = 1\nassert f(x)", ["f"]),
        ("def check(c):\n    assert c(1)\ncheck(f)", ["f"]),
        ("assert all(f(i) for i in [1])", ["f"]),
        ("assert math.isclose(f(1), pi)", ["f"]),
        ("import numpy as np\nassert np.all(f(1))", ["f"]),
        ("assert sum(1, 2) == 3", ["sum"]),
        ("from solution import f\nassert sum(f(1)) == 3", []),
    ],
)
def test_unknown_names(code, unknown):
    """Names that a test expects of the solution; built-in ones only when there is no other."""
    assert sorted(asserts.prepare(code).unknown) == unknown


def test_denied_calls_are_different():
    """No system call is in the table twice or by a wrong column."""
    for column in (0, 1):
        numbers = syscalls.numbers(column, signals=True)
        assert len(set(numbers)) == len(numbers) > 80
    assert len(syscalls.numbers(0, signals=True)) - len(syscalls.numbers(0, signals=False)) == 6
