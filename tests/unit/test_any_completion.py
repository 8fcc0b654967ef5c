# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""No text of a model decides that a row has no reward: every built-in function, hostile texts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reward_server import registry, reward_fns
from reward_server.config import RewardFnConfig
from reward_server.grading_errors import BadParameter, UngradableError
from reward_server.reward_fns import guard
from reward_server.reward_fns.errors import BadGold

NAMES = sorted(reward_fns.BUILT_IN.keys() - reward_fns.JUDGES)
HOSTILE = [
    "",
    "\0",
    "\ud83d",
    "\\ud83d",
    "1e400",
    "-1e400",
    "nan",
    "9" * 320,
    "9" * 5000,
    "{}",
    "[1, 2]",
    "0",
    "[" * 100_000,
    '{"a":' * 100_000,
    "-" * 100_000,
    "(" * 5_000 + ")" * 5_000,
    r"\frac{" * 3_000,
    r"\boxed{" * 3_000,
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{\frac{1}{0}}",
    r"\boxed{" + "9" * 400 + "!}",
    "<answer>" * 1_000,
    "<answer></answer>",
    "<think>" * 1_000,
    "####",
    "```python\n" * 1_000,
    "a" * 1_000_000,
    "the answer is " * 2_000,
    "\u0661\u00b2\uff11",
    "<|im_end|>",
]
# Rows whose data is valid; the first is the function's own example.
ROWS = {
    "json_schema": [
        {"schema": {"type": "number", "multipleOf": 0.01}},
        {"schema": {"multipleOf": 7}},
        {"schema": {"items": {"$ref": "#"}}},
    ],
    "reasoning_gym": [
        {
            "task": "prime_factorization",
            "entry": {"answer": "2 \u00d7 2", "metadata": {"number": 4, "factors": [2, 2]}},
        },
    ],
    "math": [{"answer": "{1, 2}"}, {"answer": "x+1"}],
    "regex_match": [{"regex": "(a|b)*c"}],
}


@functools.cache
def loaded(name):
    """A built-in function as a server calls it."""
    return registry.load(RewardFnConfig(fn=name, timeout_s=2.0))


def grade(name, completion, columns):
    """The reward that a server would see."""
    function = loaded(name)
    given_ = {
        "mode": "train",
        "step": 0,
        "completion_ids": list(completion.encode("utf-8", "replace")[:99]),
    }
    given_ |= {"log_extra": lambda *_: None, "log_metric": lambda *_: None}
    selected = function.select({key: [value] for key, value in columns.items()})
    return function.value(
        function.call(**function.arguments(0, ["?"], [completion], selected, given_))
    )


def rows(name):
    """Columns of valid rows."""
    return [loaded(name).probe.columns, *ROWS.get(name, [])]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_texts_have_a_reward(name):
    """The status is OK for valid data, whatever the text."""
    for columns in rows(name):
        # A sandbox is started for each code: two will do.
        for text in HOSTILE[:4] if name == "code_python" else HOSTILE:
            for completion in (text, f"<answer>{text}</answer>", rf"\boxed{{{text}}}"):
                assert math.isfinite(grade(name, completion, columns)), completion[:40]


FRAGMENTS = st.sampled_from(
    [
        *'\\{}$[]()":,-9ex^_/!\n\0\ud83d ',
        *("1e999", "\\boxed{", "\\frac", "\\int", "\\text{", "<answer>", "</answer>", "</think>"),
        *("```", "####", "(B)", "the answer is ", "null", "true", "or"),
    ]
)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "code_python"])
@settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=30).map("".join), st.integers(1, 20))
def test_any_text_has_a_reward(name, text, times):
    """Soup of what graders look for, repeated or not."""
    for columns in rows(name):
        assert math.isfinite(grade(name, text * times, columns))


def guarded(function, row_s=10.0):
    """A function in a guard, as a built-in one is."""
    return guard.Guarded(function, name="f", row_s=row_s)


def test_what_is_not_the_completion_is_raised():
    """Data, parameters, and what fails on an empty completion as well."""

    def fails(error, text):
        def function(completions, **_):
            if completions[0] in ("", text):
                raise error
            return [1.0]

        return function

    for error in (
        BadGold("answer", "a number", ""),
        BadParameter("p"),
        OSError("disk"),
        KeyError("a"),
    ):
        with pytest.raises(type(error)):
            guarded(fails(error, "bad"))(completions=["bad"])
    assert guarded(fails(UngradableError("x"), "bad"))(completions=["bad"]) == [0.0]


def test_rows_of_a_group_are_graded_alone(caplog):
    """One that cannot be graded costs its neighbours nothing; the log says so without its text."""

    def function(completions, answer, mode):
        assert mode == "train"
        if completions[0] == "secret":
            raise OverflowError(completions[0])
        return [float(completions[0] == answer[0])]

    with caplog.at_level(logging.INFO):
        call = guarded(function)
        for _ in range(11):
            rewards = call(completions=["1", "secret", "2"], answer=["1", "1", "2"], mode="train")
            assert rewards == [1.0, 0.0, 1.0]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "error=OverflowError" in lines[0]
    assert "count=1" in lines[0]
    assert "count=10" in lines[1]
    assert not any("secret" in line for line in lines)


@pytest.fixture(scope="module", autouse=True)
def limited():
    """CPU time is limited, as in a server's child."""
    before = signal.getsignal(signal.SIGPROF)
    guard.install()
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    guard._limit = guard._Limit()


def busy(completions, **_):
    """Takes for ever for one text, and goes on when it is told to stop for the first time."""
    for suppressed in (BaseException, ()):
        with contextlib.suppress(suppressed):
            while completions[0] == "slow":
                sum(range(10**5))
    return [1.0]


def test_a_text_that_takes_long_earns_nothing():
    """The limit is CPU time of the row; the next row has its own."""
    start = time.process_time()
    assert guarded(busy, row_s=1.0)(completions=["slow"]) == [0.0]
    assert time.process_time() - start < 5
    assert guarded(busy, row_s=1.0)(completions=["quick"]) == [1.0]


def test_waiting_is_not_working():
    """Time that other threads take, or that passes, is not the row's."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])

    def waits(completions):
        time.sleep(1.0)
        return [float(len(completions))]

    thread.start()
    try:
        assert guarded(waits, row_s=0.8)(completions=["x"]) == [1.0]
    finally:
        stop.set()
        thread.join()


ENDS_SLOWLY = """
import time
from reward_server.reward_fns import guard

guard.install()
guard.Guarded(lambda completions: [1.0], name="f", row_s=9.0)(completions=["x"])

class Slow:
    def __del__(self, now=time.process_time):
        end = now() + 0.3
        while now() < end:
            pass

slow = Slow()
"""


def test_a_process_ends_well():
    """The timer that is still set does not kill it while Python ends."""
    assert subprocess.run([sys.executable, "-c", ENDS_SLOWLY], check=False).returncode == 0


def test_data_that_takes_long_is_no_zero():
    """What is slow for an empty completion, too, is an error."""

    def slow(completions):
        while completions is not None:
            sum(range(10**5))

    with pytest.raises(guard.OutOfTime):
        guarded(slow, row_s=0.4)(completions=["x"])


@pytest.mark.parametrize(
    ("name", "columns", "text"),
    [
        ("regex_match", {"regex": "(a+)+"}, "a" * 60 + "!"),
        ("json_schema", {"schema": {"pattern": "^([a-z]+)*$"}}, '"' + "a" * 60 + '!"'),
        (
            "json_schema",
            {"schema": {"uniqueItems": True}},
            str([{"a": [i]} for i in range(9000)]).replace("'", '"'),
        ),
    ],
)
def test_slow_texts_of_built_in_functions(name, columns, text):
    """Searches in C and in libraries end by the limit."""
    function = registry.load(dataclasses.replace(loaded(name).config, timeout_s=1.0))
    lists = {key: [value] for key, value in columns.items()}
    assert function.call(completions=[text], prompts=[""], **lists) == [0.0]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "https://example.com/s"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"patternProperties": {"(": {}}},
        {"items": {"$ref": "#/$defs/missing"}},
        {"items": {"$ref": "#/apart/a"}, "apart": {"a": {"$ref": "#/missing"}}},
    ],
)
@pytest.mark.parametrize("text", ["1", '{"a": "x"}', "[1]", "no JSON"])
def test_bad_schemas_are_bad_for_any_text(schema, text):
    """What a value would have to come to is looked at beforehand."""
    with pytest.raises(BadGold):
        grade("json_schema", text, {"schema": schema})


@pytest.mark.parametrize("text", ["4", "2 \u00d7 2", "banana", "[]"])
@pytest.mark.parametrize(
    ("task", "entry"),
    [
        ("no_such_task", {"answer": "4"}),
        ("prime_factorization", {"answer": "two"}),
        ("prime_factorization", {}),
        ("boxnet", "["),
    ],
)
def test_bad_entries_are_bad_for_any_text(task, entry, text):
    """An item that its own answer cannot be graded against."""
    with pytest.raises(BadGold):
        grade("reasoning_gym", text, {"task": task, "entry": entry})


def test_a_wrong_setting_fails_the_probe():
    """The probe goes without a guard, which would take a setting for the completion's fault."""
    entry = RewardFnConfig(fn="reasoning_gym", messages=True)
    function = registry.load(entry)
    probe = function.probe
    columns = {key: [value] for key, value in probe.columns.items()}
    given_ = {"mode": "train", "step": 0}
    arguments = function.arguments(0, [probe.prompt], [probe.completion], columns, given_)
    assert function.call(**arguments) == [0.0]
    with pytest.raises(UngradableError):
        function.bare(**arguments)
