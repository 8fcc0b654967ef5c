# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the built-in reward functions."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import time

import pytest
from reasoning_gym import factory

from reward_server import reward_fns
from reward_server.reward_fns import reasoning_gym as reasoning_gym_module
from reward_server.reward_fns.arithmetic import arithmetic
from reward_server.reward_fns.errors import BadGold
from reward_server.reward_fns.format_lenient import format_lenient
from reward_server.reward_fns.format_strict import format_strict
from reward_server.reward_fns.gsm8k import gsm8k
from reward_server.reward_fns.integer_format import integer_format
from reward_server.reward_fns.reasoning_gym import reasoning_gym
from reward_server.reward_fns.tag_count import tag_count

PENALTIES = ("length_penalty", "overlong", "repetition_penalty")


@pytest.mark.parametrize("name", sorted(reward_fns.BUILT_IN.keys() - {"llm_judge", "reward_model"}))
def test_examples_score_one(name):
    """Every built-in function without a model gives its own example the full reward."""
    module, _, function = reward_fns.BUILT_IN[name].partition(":")
    module = importlib.import_module(module)
    example = module.EXAMPLE
    columns = {key: [value] for key, value in example["columns"].items()}
    call = getattr(module, function)
    if "completion_ids" in inspect.signature(call).parameters:
        columns["completion_ids"] = [[]]
    best = 0.0 if name in PENALTIES else 1.0
    assert call([example["prompt"]], [example["completion"]], **columns) == [best]


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        ("#### 1,234.50 dollars", "1234.5", 1.0),
        ("#### 12,34", "1234", 0.0),
        ("#### 5 or 6", "5", 0.0),
        ("#### 5k", "5", 0.0),
        ("#### -$5", "-5", 1.0),
        ("#### 5\nDone in 3 steps.", "5", 1.0),
        ("#### 1e999999999", "1", 0.0),
        ("#### 5\N{REPLACEMENT CHARACTER}", "5", 0.0),
        ("42", "42", 0.0),
        ("#### 7", "3 + 4 = <<3+4=7>>7\n#### 7", 1.0),
        ("#### 7", 7, 1.0),
        ("#### 7", 7.0, 1.0),
        ("#### 40 #### 41", "41", 0.0),
        ("<think>#### 7", "7", 0.0),
        ("<think>#### 7</think> 7", "7", 0.0),
        ("#### 7 or 8", "7", 0.0),
        ("#### 7, maybe 8", "7", 0.0),
        ("#### [1, 2]", "[1,2]", 1.0),
        ("#### [2, 1]", "[1,2]", 0.0),
        ("#### 1", "[1]", 1.0),
        (None, "7", 0.0),
        ("#### 42 apples", "42", 1.0),
        ("#### 42 (apples)", "42", 1.0),
        ("#### 1,000", "1000", 1.0),
        ("#### 1,00", "100", 0.0),
        ("#### $1,000.50", "1000.5", 1.0),
        ("#### 42%", "42", 1.0),
        ("#### 42/2", "21", 0.0),
        ("#### 42\n", "42", 1.0),
        ("#### 42 and 43", "42", 0.0),
        ("#### 42 or so", "42", 0.0),
        ("#### 4 2", "42", 0.0),
        ("#### 42 43", "42", 0.0),
        ("#### = 42", "42", 0.0),
        ("#### x = 42", "42", 0.0),
        (r"#### \boxed{42}", "42", 1.0),
        (r"#### \boxed{42} or \boxed{43}", "42", 0.0),
        ("#### The answer is 42", "42", 1.0),
        ("#### **42** dollars", "42", 1.0),
        ("#### 42<|unknown|>", "42", 1.0),
        ("#### $42$", "42", 1.0),
        (r"#### \$42", "42", 1.0),
        ("#### 42 dollars", "42", 1.0),
        ("#### about 42", "42", 0.0),
        ("#### 0042", "42", 1.0),
        ("#### -0", "0", 1.0),
        ("#### +42", "42", 1.0),
        ("#### 42.0000", "42", 1.0),
        ("#### 42.0001", "42", 0.0),
        ("#### 4.2e+1", "42", 1.0),
        ("#### \uff14\uff12", "42", 1.0),
        ("#### 42\u3002", "42", 1.0),
        ("#### \u20ac42", "42", 1.0),
        ("#### 42\u20ac", "42", 1.0),
        ("#### 42 ", "42", 1.0),
        ("####42####", "42", 0.0),
        ("#### forty", "40", 0.0),
        ("#### 1 000", "1000", 0.0),
        ("#### 42, 43", "42", 0.0),
        ("#### 42?", "42", 0.0),
        ("#### 42-43", "42", 0.0),
        ("#### 42 => 43", "42", 0.0),
        ("#### 42 km/h", "42", 1.0),
        ("#### 42 m^2", "42", 0.0),
        ("#### 42!", "42", 1.0),
        ('#### "42"', "42", 0.0),
        ("#### (42)", "42", 0.0),
        ("#### 42 is the answer", "42", 1.0),
        ("#### 7<|im_end|>", "7", 1.0),
        ("#### 42 not 43", "42", 0.0),
        ("<answer>#### 42</answer>", "42", 1.0),
        ("<answer>42</answer>#### 41", "42", 0.0),
        ("#### 42</answer>", "42", 1.0),
        ("#### 42\n\n\n", "42", 1.0),
        ("### 42", "42", 0.0),
        ("##### 42", "42", 1.0),
        ("# ### 42", "42", 0.0),
        ("#### 0.1", "0.10000000000000000001", 0.0),
    ],
)
def test_gsm8k(completion, gold, expected):
    """One well-formed number after the marker, compared exactly."""
    assert gsm8k([""], [completion], [gold]) == [expected]


@pytest.mark.parametrize("gold", ["seven", "", None, True, "1 2", "#### ", [7]])
def test_gsm8k_bad_gold(gold):
    """A reference without a number is an error."""
    with pytest.raises(BadGold, match=r"^`answer` must be a number"):
        gsm8k([""], ["#### 7"], [gold])


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        (" 12\n", "12", 1.0),
        ("-3", -3, 1.0),
        ("12", "13", 0.0),
        ("+12", "12", 0.0),
        ("012", "12", 0.0),
        ("12.", "12", 0.0),
        ("1 2", "12", 0.0),
        ("\uff11\uff12", "12", 0.0),
        ("", "12", 0.0),
        ("12", "twelve", None),
        ("12", 12.5, None),
        ("1", True, None),
    ],
)
def test_arithmetic(completion, gold, expected):
    """The completion is the integer and nothing else."""
    assert arithmetic([""], [completion], [gold]) == [expected]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [("5", 1.0), ("-123456", 1.0), ("1234567", 0.0), (" 5", 0.0), ("", 0.0), ("-", 0.0)],
)
def test_integer_format(completion, expected):
    """Optional minus and 1 to 6 digits."""
    assert integer_format([""], [completion]) == [expected]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><answer>5</answer>", 1.0),
        ("\n<think>\na\n</think>\n\n<answer>\n5\n</answer>\n\n", 1.0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", 0.0),
        ("</think>x<answer>y<think>z</answer>", 0.0),
        ("<answer>5</answer><think>a</think>", 0.0),
        ("<think>a</think><answer> \n</answer>", 0.0),
        ("<think> </think><answer>5</answer>", 0.0),
        ("<think>a</think><answer>5</answer> more", 0.0),
        ("<think>a</think> so <answer>5</answer>", 0.0),
        ("a</think><answer>5</answer>", 0.0),
        ("<think>a</think><answer>5", 0.0),
        ("<think>a</answer><answer>5</think>", 0.0),
        ("<think>a</think><answer><answer>5</answer></answer>", 0.0),
        ("", 0.0),
    ],
)
def test_format(completion, expected):
    """One think block, white space, one answer block, nothing else."""
    assert format_strict([""], [completion]) == [expected]


def test_format_is_linear():
    """A million characters of open tags take no time."""
    start = time.process_time()
    for function in (format_strict, format_lenient, tag_count):
        assert function([""], ["<think>a</think>" * 60_000 + "<think>"]) == [0.0]
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("So <think>a</think> and <answer>5</answer> there.", 1.0),
        ("<think>a</think><answer>5</answer>", 1.0),
        ("<answer>5</answer><think>a</think>", 0.0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", 0.0),
        ("<think> </think><answer>5</answer>", 0.0),
        ("<think>a<answer>5</think></answer>", 0.0),
        ("<think>a</think>5", 0.0),
        (None, 0.0),
    ],
)
def test_format_lenient(completion, expected):
    """Both blocks, each once, in order and not empty, with any text around them."""
    assert format_lenient([""], [completion]) == [expected]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><answer>5</answer>", 1.0),
        ("</answer><answer></think><think>", 1.0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", 0.5),
        ("<think>a</think>", 0.5),
        ("</think>", 0.25),
        ("", 0.0),
    ],
)
def test_tag_count(completion, expected):
    """A quarter for each tag that is there once."""
    assert tag_count([""], [completion]) == [expected]


def test_tag_names():
    """The names of the tags are parameters."""
    text = "<plan>a</plan><final>5</final>"
    names = {"think_tag": "plan", "answer_tag": "final"}
    for function in (format_strict, format_lenient, tag_count):
        assert function([""], [text], **names) == [1.0]
        assert function([""], [text]) == [0.0]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [(" 4 ", 1.0), ("<answer>3</answer> no <answer> 4 </answer>", 1.0), ("5", 0.0)],
)
def test_reasoning_gym(completion, expected):
    """The last answer block or the whole completion goes to the dataset's own verifier."""
    entry = {"answer": "4", "metadata": {}}
    for item in (entry, json.dumps(entry)):
        assert reasoning_gym([""], [completion], ["basic_arithmetic"], [item]) == [expected]


def test_reasoning_gym_unknown_task():
    """An unknown task is an error, not a wrong answer."""
    with pytest.raises(ValueError, match="no_such_task"):
        reasoning_gym([""], ["4"], ["no_such_task"], [{"answer": "4"}])


def test_tasks_whose_verifiers_run_the_answer_are_refused():
    """An answer is not run as code unless the rewards file allows it."""
    entry = {"answer": "4", "metadata": {"numbers": [2, 2], "target": 4}}
    call = {"prompts": [""], "completions": ["2 + 2"], "task": ["countdown"], "entry": [entry]}
    with pytest.raises(ValueError, match="`task` 'countdown' runs answers as code"):
        reasoning_gym(**call)
    assert reasoning_gym(**call, allow_eval=True) == [1.0]


def test_list_of_such_tasks_is_whole():
    """No verifier outside the list calls eval, exec or SymPy's parser by its source."""
    found = set()
    for name, (dataset, _) in factory.DATASETS.items():
        # The packages' own parsers of the same name are none of these.
        source = inspect.getsource(inspect.getmodule(dataset))
        tree = ast.parse(source)
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sympy")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.FunctionDef) and node.name == "score_answer"):
                continue
            for part in ast.walk(node):
                if not isinstance(part, ast.Call):
                    continue
                called = part.func.attr if isinstance(part.func, ast.Attribute) else part.func.id
                own = isinstance(part.func, ast.Name) and called not in imported
                if called in {"eval", "exec"} or (called in {"parse_expr", "sympify"} and not own):
                    found.add(name)
    assert found <= reasoning_gym_module.EVALUATING, found
    assert "countdown" in found
