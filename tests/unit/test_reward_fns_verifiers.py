# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the verifiers of numbers, choices, texts and JSON."""

from __future__ import annotations

import json

import pytest

from reward_server.reward_fns.boxed_number import boxed_number
from reward_server.reward_fns.errors import BadGold
from reward_server.reward_fns.exact_match import exact_match
from reward_server.reward_fns.json_schema import json_schema
from reward_server.reward_fns.multiple_choice import multiple_choice
from reward_server.reward_fns.numeric_tolerance import numeric_tolerance
from reward_server.reward_fns.regex_match import regex_match


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        (r"\boxed{42}", "42", 1.0),
        (r"\boxed{41} no, \boxed{42}", 42, 1.0),
        (r"\boxed{1{,}234.50}", "1234.5", 1.0),
        (r"\boxed{\frac{-1}{2}}", -0.5, 1.0),
        (r"\boxed{1\frac12}", "3/2", 1.0),
        (r"\boxed{5\text{ cm}}", "5", 1.0),
        (r"\boxed{5\text{ cm}}", r"5\text{ m}", 0.0),
        (r"\boxed{0.333333}", "1/3", 0.0),
        (r"\boxed{2+3}", "5", 0.0),
        (r"\boxed{\sqrt{25}}", "5", 0.0),
        (r"\boxed{5, 6}", "5", 0.0),
        (r"\boxed{5 or 6}", "5", 0.0),
        (r"\boxed{}", "5", 0.0),
        ("5", "5", 0.0),
        ("<answer>5</answer>", "5", 0.0),
        (r"<think>\boxed{5}", "5", 0.0),
        (r"\boxed{0/0}", "5", 0.0),
        (None, "5", 0.0),
    ],
)
def test_boxed_number(completion, gold, expected):
    """The last box is one number, compared exactly."""
    assert boxed_number([""], [completion], [gold]) == [expected]


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        ("The answer is (B).", "B", 1.0),
        ("The answer is B", "(B)", 1.0),
        ("Answer: B. Because it is even.", "B", 1.0),
        ("**Answer:** B", "B", 1.0),
        (r"\boxed{B}", "B", 1.0),
        (r"\boxed{\text{(B)}}", "b", 1.0),
        (r"\boxed{\textbf{(B) } 12}", "B", 1.0),
        (r"\boxed{b}", "B", 1.0),
        ("<answer>B) Paris</answer>", "B", 1.0),
        ("<answer>The correct answer is B</answer>", "B", 1.0),
        ("It must be even.\nB", "B", 1.0),
        ("It must be even.\n(B).", "B", 1.0),
        ("The answer is (A). No, the answer is (B).", "B", 1.0),
        (r"\boxed{A} no, \boxed{B}", "B", 1.0),
        ("The answer is (C).", "B", 0.0),
        ("The answer is A or B.", "B", 0.0),
        ("The answer is (A) or (B).", "A", 0.0),
        (r"\boxed{A, B}", "B", 0.0),
        (r"\boxed{AB}", "A", 0.0),
        (r"\boxed{A/B}", "A", 0.0),
        (r"\boxed{A}, \boxed{B}", "B", 0.0),
        ("<answer>A B C D</answer>", "A", 0.0),
        ("<answer>A, maybe B</answer>", "A", 0.0),
        ("(A) 3 (B) 4 (C) 5", "B", 0.0),
        ("A good question.", "A", 0.0),
        ("The answer is a mystery", "A", 0.0),
        ("<think>The answer is B</think>", "B", 0.0),
        ("<think>The answer is B", "B", 0.0),
        (r"\boxed{K}", "A", 0.0),
        ("", "B", 0.0),
        (None, "B", 0.0),
    ],
)
def test_multiple_choice(completion, gold, expected):
    """One letter, in a box, a tag, a phrase or alone on the last line."""
    assert multiple_choice([""], [completion], [gold]) == [expected]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("New  York\n", 1.0),
        ("<think>Boston?</think>New York", 1.0),
        ("It is <answer> New York </answer>.", 1.0),
        ("New York<|im_end|>x", 1.0),
        ("new york", 0.0),
        ("New York.", 0.0),
        ("NewYork", 0.0),
        ("<think>New York", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_exact_match(completion, expected):
    """The reference itself, white space aside."""
    assert exact_match([""], [completion], ["New York"]) == [expected]


def test_exact_match_case():
    """Case matters unless it is said not to."""
    assert exact_match([""], ["new york"], ["New York"], case_sensitive=False) == [1.0]


@pytest.mark.parametrize(
    ("completion", "parameters", "expected"),
    [
        ("1994", {}, 1.0),
        ("<think>x</think> 1994\n", {}, 1.0),
        ("in 1994", {}, 0.0),
        ("in 1994", {"whole": False}, 1.0),
        ("<think>1994", {"whole": False}, 0.0),
        ("ABC", {"pattern": "abc"}, 0.0),
        ("ABC", {"pattern": "abc", "ignore_case": True}, 1.0),
        (None, {}, 0.0),
    ],
)
def test_regex_match(completion, parameters, expected):
    """The whole text or a part, by the row's expression or one for all."""
    assert regex_match([""], [completion], regex=["199[0-9]"], **parameters) == [expected]


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        (r"\boxed{3.14}", 3.14159, 1.0),
        (r"\boxed{3.1}", 3.14159, 0.0),
        (r"\boxed{\pi}", "3.14159", 1.0),
        (r"\boxed{x = 3.14\text{ cm}}", r"3.14159\text{ cm}", 1.0),
        (r"\boxed{3.14\text{ cm}}", r"3.14159\text{ m}", 0.0),
        (r"\boxed{-3.14}", 3.14159, 0.0),
        (r"\boxed{3.14 or 3.15}", 3.14159, 0.0),
        (r"\boxed{3, 3.14}", 3.14159, 0.0),
        (r"\boxed{\infty}", 3.14159, 0.0),
        (r"\boxed{x}", 3.14159, 0.0),
        (r"\boxed{9^{9^{9}}}", 3.14159, 0.0),
        ("3.14", 3.14159, 0.0),
        (r"\boxed{0.001}", 0, 0.0),
    ],
)
def test_numeric_tolerance(completion, gold, expected):
    """One number within one percent."""
    assert numeric_tolerance([""], [completion], [gold]) == [expected]


def test_numeric_tolerances():
    """Either tolerance is enough; both can be zero."""
    near, gold = [r"\boxed{0.001}"], ["0"]
    assert numeric_tolerance([""], near, gold, absolute_tolerance=0.001) == [1.0]
    assert numeric_tolerance([""], near, ["0.001"], relative_tolerance=0.0) == [1.0]
    assert numeric_tolerance([""], near, ["0.0011"], relative_tolerance=0.2) == [1.0]


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ('{"x": 1}', 1.0),
        ('```json\n{"x": 1}\n```', 1.0),
        ('Draft:\n```\n{}\n```\nFinal:\n```json\n{"x": 1}\n```\nDone.', 1.0),
        ('<think>{}</think><answer>{"x": 1}</answer>', 1.0),
        ('{"x": "1"}', 0.0),
        ("{}", 0.0),
        ('{"x": 1} and more', 0.0),
        ('{"x": 1', 0.0),
        ('{"x": 1, "x": "a"}', 0.0),
        ('{"x": 1, "y": NaN}', 0.0),
        ('<think>{"x": 1}', 0.0),
        ("[" * 100_000, 0.0),
        ('{"x": ' + "9" * 5000 + "}", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_json_schema(completion, expected):
    """One JSON value that is valid under the schema, as a dict or as text."""
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        assert json_schema([""], [completion], [schema]) == [expected]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "thing"},
        "{",
        "[1]",
        None,
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/missing"},
    ],
    ids=repr,
)
def test_json_schema_bad_schema(schema):
    """A bad schema is an error of the data, and none is fetched."""
    with pytest.raises(BadGold, match=r"^`schema` must be"):
        json_schema([""], ["{}"], [schema])


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        (boxed_number, {"answer": ["five"]}),
        (boxed_number, {"answer": ["5, 6"]}),
        (boxed_number, {"answer": [True]}),
        (multiple_choice, {"answer": ["K"]}),
        (multiple_choice, {"answer": ["AB"]}),
        (multiple_choice, {"answer": [None]}),
        (exact_match, {"answer": [" "]}),
        (exact_match, {"answer": [5]}),
        (regex_match, {}),
        (regex_match, {"regex": ["("]}),
        (regex_match, {"regex": [None]}),
        (numeric_tolerance, {"answer": ["x"]}),
        (numeric_tolerance, {"answer": [float("nan")]}),
        (numeric_tolerance, {"answer": [r"\infty"]}),
    ],
)
def test_bad_gold(function, columns):
    """A reference of another kind is an error that names the column."""
    with pytest.raises(BadGold, match=r"^`(answer|regex)` must be"):
        function([""], [r"\boxed{5}"], **columns)
