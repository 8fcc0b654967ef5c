# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of `reward-server rewards`: what is said of the built-in functions, and of one's own."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from reward_server import cli, reward_fns
from tests.integration import service

MINE = """
EXAMPLE = {"prompt": "3+4?", "completion": "7", "columns": {"answer": "7"}}

def careful(completions, answer, *, worth=1.0, **_):
    if completions[0] == "":
        return [None]
    return [worth * (completions[0].startswith(answer[0]))]

def careless(completions, **_):
    if "\\ud800" in completions[0]:
        completions[0].encode()
    if completions[0].count("[") > 1000:
        import time
        time.sleep(600)
    if completions[0] == "\\0":
        import os
        os.abort()
    return [1.0]

def broken(completions, **_):
    return [undefined]

async def judge(completion, answer):
    return float(completion == answer)
"""


def run(*args, code=0, cwd=service.ROOT):
    """Runs the command, checks its exit code and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "reward_server", "rewards", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code in (cli.EXIT_OK, cli.EXIT_FAILED) else done.stderr


@pytest.fixture
def mine(tmp_path):
    """A folder with a file of functions."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path


def outcomes(printed):
    """What was printed for each input."""
    found = re.findall(r"^(\S.*?) +\d+\.\d+ s  (.*)$", printed, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_all_built_in_functions_are_listed():
    """Each has a line that says what it does; parameters have their defaults."""
    printed = run()
    listed = [line.split()[0] for line in printed.splitlines() if not line.startswith(" ")]
    assert listed == list(reward_fns.BUILT_IN)
    assert re.search(r"^gsm8k +Rewards completions whose marked number", printed, re.MULTILINE)
    assert re.search(r"^reasoning_gym .*\n +params: allow_eval=False$", printed, re.MULTILINE)


@pytest.mark.parametrize("name", reward_fns.BUILT_IN)
def test_a_built_in_function_is_explained(name):
    """Contract, columns, parameters and what it gives for three rows or more."""
    printed = run(name)
    assert printed.startswith(f"{name}: ")
    contract, _, examples = printed.partition("\nexamples:\n")
    assert "Contract:" in contract
    assert "\ncolumns: " in contract
    assert "\nparams: " in contract
    shown = re.findall(r"^  (?:-?\d\S*|None|error: .*) for completion ", examples, re.MULTILINE)
    if name in ("llm_judge", "reward_model"):  # an endpoint or a folder is missing
        assert re.search(r"can't be run: .*`(?:model|path)` must be", examples)
    else:
        assert len(shown) >= 3
        assert "error: it takes completion_ids" not in examples


def test_values_of_examples_are_computed():
    """They are what the function gives for the rows shown."""
    printed = run("arithmetic")
    assert "columns: answer\n" in printed
    assert "params: none\n" in printed
    assert "  1.0 for completion '4', answer '4'\n" in printed
    assert "  0.0 for completion '', answer '4'\n" in printed


def test_an_unknown_name_is_a_configuration_error():
    """The nearest name is offered."""
    assert "the nearest is `gsm8k`" in run("gsm", code=3)
    assert "FN is required, or --rewards" in run("test", code=2)
    assert "unrecognized arguments: arithmetic" in run("gsm8k", "arithmetic", code=2)


def test_a_function_that_survives(mine):
    """Values and None are both fine; a relative path is taken from where one stands."""
    printed = run("test", "mine.py:careful", cwd=mine)
    found = outcomes(printed)
    assert found["example"] == "1.0"
    assert found["empty"] == "None"
    assert found["lone surrogates"] == "0.0"
    assert found["example and 100,000 newlines"] == "1.0"
    assert "\n0 of 26 inputs failed" in printed


def test_what_hurts_a_function_is_named(mine):
    """A raise has its line in the function's file; a hang and a crash are told apart."""
    printed = run(
        *("test", mine / "mine.py:careless", "--timeout-s", "1", "--completion", "fine"), code=1
    )
    found = outcomes(printed)
    assert found["example"] == found["empty"] == found["very long number"] == "1.0"
    line = MINE.splitlines().index("        completions[0].encode()") + 1
    assert found["lone surrogates"].startswith("error: UnicodeEncodeError: ")
    assert found["lone surrogates"].endswith(f"(line {line} of mine.py)")
    line = MINE.splitlines().index("        time.sleep(600)") + 1
    assert found["brackets, nested"] == f"ran longer than 1 s (line {line} of mine.py)"
    assert found["NUL"].startswith("error: its process was killed by SIGABRT")
    # Alone and after the example: surrogates and two kinds of brackets. NUL only alone.
    failed = {name for name, text in found.items() if text != "1.0"}
    assert "example and brackets, never closed" in failed
    assert f"\n{len(failed)} of 26 inputs failed" in printed


def test_example_from_flags(mine):
    """Columns are text or JSON, beside or in place of those of the file's example."""
    flags = ("test", mine / "mine.py:careful", "--completion", "8", "--column")
    assert outcomes(run(*flags, "answer=8"))["example"] == "1.0"
    printed = run(*flags, "answer:=8", code=1)
    assert outcomes(printed)["example"].startswith("error: TypeError")
    assert "of mine.py)" in printed
    taken = run("test", mine / "mine.py:judge", "--column", "gold=8", code=3)
    assert "`--column gold` must be a column that the function takes: answer" in taken
    assert "`--column` must be NAME=TEXT" in run(*flags, "answer", code=3)
    assert "`--column answer` must be JSON" in run(*flags, "answer:={", code=3)


def test_without_an_example(mine):
    """A made-up row that the function can't score leads to the flags that give another one."""
    (mine / "bare.py").write_text(
        "def number(completions, answer):\n    return [float(int(answer[0]))]\n", encoding="utf-8"
    )
    printed = run("test", "bare.py:number", cwd=mine, code=1)
    assert outcomes(printed)["example"].startswith("error: ValueError")
    assert "Pass --completion and --column, or write EXAMPLE = {" in printed
    found = outcomes(run("test", "bare.py:number", "--column", "answer=3", cwd=mine))
    assert set(found.values()) == {"3.0"}
    # Nothing to read was given, so that hostile texts come alone.
    assert len(found) == 14


def test_functions_of_token_ids():
    """Without a tokenizer the bytes of the text stand for its tokens."""
    printed = run("test", "length_penalty")
    found = outcomes(printed)
    assert found["empty"] == "0.0"
    assert found["1 MB of letters"] == "-1.0"
    assert "\n0 of 26 inputs failed" in printed


def test_functions_of_one_row_and_async(mine):
    """How a function wants to be called is seen from its signature."""
    found = outcomes(run("test", mine / "mine.py:judge"))
    assert found["example"] == "1.0"
    assert found["1 MB of letters"] == "0.0"


def test_an_entry_of_a_rewards_file(mine):
    """With a rewards file its settings are used: params, limit and probe."""
    (mine / "r.toml").write_text(
        '[[reward]]\nname = "much"\nfn = "mine.py:careful"\nparams = { worth = 5.0 }\n', "utf-8"
    )
    flags = ("--rewards", mine / "r.toml")
    printed = run("test", "much", *flags)
    assert outcomes(printed)["example"] == "5.0"
    assert 'much: per = "list", timeout_s = 10, worth = 5.0\n' in printed
    assert "the nearest is `much`" in run("test", "muck", *flags, code=3)


def test_all_entries_of_a_rewards_file(mine):
    """For CI: a line for each function, what fails below it, and the code says the worst."""
    (mine / "mine.py").write_text(
        "def picky(completion):\n    return 1.0 / len(completion)\n", encoding="utf-8"
    )
    rewards = mine / "r.toml"
    good = '[[reward]]\nfn = "format"\n'
    bad = '[[reward]]\nname = "inverse"\nfn = "mine.py:picky"\nper = "row"\nweight = 0\n'
    flags = ("test", "--rewards", rewards)
    rewards.write_text(good, "utf-8")
    assert run(*flags) == "format  0 of 26 inputs failed\n\nfunctions: 1 ok\n"
    rewards.write_text(bad + good, "utf-8")
    printed = run(*flags, code=1)
    name, failure, _, *rest = printed.splitlines()
    assert name == "inverse  2 of 14 inputs failed"
    assert re.fullmatch(r"  example +error: ZeroDivisionError: .* \(line 2 of mine.py\)", failure)
    assert "EXAMPLE = {" in rest[0]
    assert rest[1:] == ["format   0 of 26 inputs failed", "", "functions: 1 ok, 1 failed"]
    rewards.write_text(bad + good + '[[reward]]\nfn = "mine.py:gone"\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "reward_server", "rewards", *map(str, flags)],
        cwd=mine, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == cli.EXIT_CONFIG
    assert "\ngone     can't be loaded\n  reward function 'gone' cannot be loaded" in done.stdout
    assert done.stdout.endswith("\nfunctions: 1 ok, 1 failed, 1 can't be loaded\n")
    assert "must come with FN" in run(*flags, "--column", "a=1", code=2)
    rewards.write_text('[[reward]]\nfn = "format"\nweigth = 1\n', "utf-8")
    assert "the nearest is `weight`" in run(*flags, code=3)


@pytest.mark.parametrize("weight", [0, -2])
def test_values_are_what_the_function_returned(mine, weight):
    """The weight has no part in them, and hides no error."""
    (mine / "r.toml").write_text(
        f'[[reward]]\nfn = "mine.py:half"\nper = "row"\nweight = {weight}\nnone = "skip"\n', "utf-8"
    )
    (mine / "mine.py").write_text(
        "def half(completion):\n"
        "    if not completion:\n        raise ValueError('empty')\n"
        "    return 0.5 if completion.isprintable() else None\n",
        encoding="utf-8",
    )
    flags = ("--rewards", mine / "r.toml", "--completion", "x")
    found = outcomes(run("test", "half", *flags, code=1))
    assert found["example"] == "0.5"
    assert found["empty"] == "error: ValueError: empty (line 3 of mine.py)"
    assert found["NUL"] == "None"


def test_functions_of_groups_get_groups(mine):
    """The rows of the example, and those with a hostile one; what compares rows can do so."""
    (mine / "mine.py").write_text(
        'EXAMPLE = {"completions": ["a", "bbb"]}\n'
        "import statistics\n"
        "def spread(completions, **_):\n"
        "    deviation = statistics.stdev(map(len, completions))\n"
        "    if 1000 < deviation < 30000:\n        raise ValueError('far')\n"
        "    return [len(completions) if c else 0.0 for c in completions]\n",
        encoding="utf-8",
    )
    (mine / "r.toml").write_text('[[reward]]\nfn = "mine.py:spread"\nper = "group"\n', "utf-8")
    printed = run("test", "spread", "--rewards", mine / "r.toml", code=1)
    assert "example: completions ['a', 'bbb']\n" in printed
    found = outcomes(printed)
    assert found["example"] == "[2, 2]"
    assert found["empty"] == "[3, 3, 0]"
    assert found["brackets, nested"] == "error: ValueError: far (line 6 of mine.py)"
    assert found["1 MB of letters"] == "[3, 3, 3]"


def test_a_function_that_compares_rows_is_told(mine):
    """A list function whose values depend on the other rows needs groups; others do not."""
    (mine / "mine.py").write_text(
        "import random\n"
        "def relative(completions, **_):\n"
        "    return [len(c) / (max(map(len, completions)) or 1) for c in completions]\n"
        "def plain(completions, **_):\n    return [float(len(c)) for c in completions]\n"
        "def dice(completions, **_):\n    return [random.random() for _ in completions]\n",
        encoding="utf-8",
    )
    flags = ("--completion", "a few words", "--slots", 1)
    assert "it compares rows" in run("test", mine / "mine.py:relative", *flags)
    assert "it compares rows" not in run("test", mine / "mine.py:plain", *flags)
    assert "it compares rows" not in run("test", mine / "mine.py:dice", *flags)


def test_a_file_is_not_run_in_the_command_itself(mine):
    """Its threads, reads of the terminal and settings are those of a process that is killed."""
    (mine / "mine.py").write_text(
        "import os, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "assert os.environ['JAX_PLATFORMS'] == 'cpu'\n"
        "assert sys.stdin.read() == ''\n"
        "print('loaded here')\n"
        "def f(completion):\n    return 1.0\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "reward_server", "rewards", "test", "mine.py:f"]
    done = subprocess.run(
        command, cwd=mine, capture_output=True, text=True, timeout=100, check=False, input="typed"
    )
    assert done.returncode == cli.EXIT_OK, done.stderr
    assert "loaded here" in done.stderr


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        ("mine.py:none", "has no function 'none'"),
        ("syntax.py:f", r"SyntaxError: .* \(line 2 of syntax.py\)"),
        ("missing.py:f", "there is no file"),
        ("gsm", "no built-in function; the nearest is `gsm8k`"),
    ],
)
def test_a_function_that_does_not_start(mine, fn, message):
    """What is wrong, and the line of the function's file where there is one."""
    (mine / "syntax.py").write_text("\ndef f(:\n", encoding="utf-8")
    assert re.search(message, run("test", fn, cwd=mine, code=3))
