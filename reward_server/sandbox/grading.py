# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one solution in a sandbox and decides which passed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from reward_server.sandbox import values
from reward_server.sandbox.checks import AssertTest, BadTests, CallTest, ProgramTest, Test
from reward_server.sandbox.sandbox import Run, RunEndedError, Sandbox

_MAX_ANSWER_BYTES = 64 * 2**10
# A tuple is spelled longer than the list that it equals: `[],` and `{"type":"tuple","value":[]},`.
_MAX_SPELLING = 10


class Grading:
    """Tests of one solution; asserts and calls share its process until one breaks it.

    Args:
        sandbox: where to run.
        code: text of the solution.
        timeout_s: seconds for each test.
        tests: number of tests, for the limit of CPU time.
        total_s: seconds for all of them, loading included.
    """

    def __init__(
        self, sandbox: Sandbox, code: str, *, timeout_s: float, tests: int, total_s: float
    ) -> None:
        self._sandbox = sandbox
        self._code = code
        self._timeout_s = timeout_s
        self._cpu_s = timeout_s * tests
        self._ends = time.monotonic() + total_s
        self._prefix = ""
        self._loaded = False
        self._broken: set[str] = set()
        self._solution: Run | None = None
        self._referee: Run | None = None

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends its processes."""
        self._end()

    def passes(self, test: Test) -> bool:
        """Runs one test.

        Raises:
            BadTests: no solution could pass it.
            SandboxError: the sandbox failed.
        """
        limit_s = min(self._timeout_s, self._ends - time.monotonic())
        is_program = isinstance(test, ProgramTest)
        if limit_s <= 0 or (not is_program and test.prefix in self._broken):
            return False
        if isinstance(test, ProgramTest):
            self._end()
            result = self._sandbox.program(
                self._sources(test.prefix), stdin=test.stdin, timeout_s=limit_s
            )
            return result.code == 0 and _same_text(result.output, test.stdout, test.tolerance)
        try:
            solution = self._open(test)
            # Making processes is our time; loading the solution is its own, in its first test.
            deadline = min(time.monotonic() + self._timeout_s, self._ends)
            if not self._loaded and not self._load(solution, test.prefix, deadline):
                self._end()
                return False
            if isinstance(test, CallTest):
                return self._call(solution, test, deadline)
            return self._judge(solution, test, deadline)
        except RunEndedError:
            self._end()
            return False

    def _sources(self, prefix: str) -> list[str]:
        # A completion may go on with the prefix, or write it again.
        return [prefix + self._code, self._code] if prefix else [self._code]

    def _open(self, test: AssertTest | CallTest) -> Run:
        if self._solution is None or test.prefix != self._prefix:
            self._end()
            self._prefix = test.prefix
            self._solution = self._sandbox.open("solution", cpu_s=self._cpu_s)
        if self._referee is None and isinstance(test, AssertTest):
            self._referee = self._sandbox.open("referee", cpu_s=self._cpu_s)
        return self._solution

    def _load(self, solution: Run, prefix: str, deadline: float) -> bool:
        request = {"operation": "load", "sources": self._sources(prefix)}
        # Loading is not tried again: one that hangs would hang for every test.
        self._broken.add(prefix)
        self._loaded = "value" in self._sandbox.ask(solution, request, deadline)
        if self._loaded:
            self._broken.discard(prefix)
        return self._loaded

    def _call(self, solution: Run, test: CallTest, deadline: float) -> bool:
        # What is decoded here is in no sandbox: no more of it than a right answer could need.
        max_bytes = _MAX_ANSWER_BYTES + _MAX_SPELLING * len(values.dumps(test.expected_as_json()))
        reply = self._sandbox.ask(solution, test.request(), deadline, max_bytes=max_bytes)
        if "value" not in reply:
            return False
        try:
            value = values.decode(reply["value"])
            return _same_value(value, test.expected, test.tolerance, as_json=test.as_json)
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return False

    def _judge(self, solution: Run, test: AssertTest, deadline: float) -> bool:
        referee = cast("Run", self._referee)
        message = self._sandbox.exchange(referee, {"code": test.code}, deadline)
        while "ask" in message:
            reply = self._sandbox.ask(solution, message["ask"], deadline)
            message = self._sandbox.exchange(referee, reply, deadline)
        if message["verdict"] == "bad":
            raise BadTests(f"a test cannot be run: {message['message']}.")
        return bool(message["verdict"] == "passed")

    def _end(self) -> None:
        self._solution = self._referee = None
        self._loaded = False
        self._sandbox.end()


def _same_text(output: bytes, expected: str, tolerance: float | None) -> bool:
    text = output.decode("utf-8", errors="replace")
    if tolerance is None:
        return _lines(text) == _lines(expected)
    words, wanted = text.split(), expected.split()
    return len(words) == len(wanted) and all(
        word == want or _close_words(word, want, tolerance)
        for word, want in zip(words, wanted, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _close_words(word: str, want: str, tolerance: float) -> bool:
    try:
        return math.isclose(float(word), float(want), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def _same_value(value: Any, expected: Any, tolerance: float | None, *, as_json: bool) -> bool:
    if as_json:
        value, expected = _as_json(value), _as_json(expected)
    return _close(value, expected, tolerance) if tolerance is not None else bool(value == expected)


def _as_json(value: Any) -> Any:
    """Makes lists of tuples and texts of keys, since JSON has nothing else."""
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _as_json(item) for key, item in value.items()}
    return value


def _key(key: Any) -> Any:
    return json.dumps(key) if key is None or isinstance(key, bool | int | float) else key


def _close(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(value, list | tuple) and type(value) is type(expected):
        return len(value) == len(expected) and all(
            _close(a, b, tolerance) for a, b in zip(value, expected, strict=True)
        )
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _close(value[key], expected[key], tolerance) for key in value
        )
    return bool(value == expected)


def count_passed(
    sandbox: Sandbox,
    code: str,
    tests: Sequence[Test],
    *,
    timeout_s: float,
    stop: bool,
    total_s: float = math.inf,
) -> int:
    """Counts the tests that a solution passes.

    Args:
        sandbox: where to run them.
        code: text of the solution.
        tests: what it must do.
        timeout_s: seconds for each test.
        stop: whether the first that fails ends it.
        total_s: seconds for all tests; those that have not ended by then fail.

    Raises:
        BadTests: no solution could pass one of them.
        SandboxError: the sandbox failed.
    """
    passed = 0
    with Grading(sandbox, code, timeout_s=timeout_s, tests=len(tests), total_s=total_s) as grading:
        for test in tests:
            if grading.passes(test):
                passed += 1
            elif stop:
                break
    return passed
