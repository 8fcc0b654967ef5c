# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests as they stand in a dataset: their forms, checked before anything is run."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from reward_server.grading_errors import NotTheCompletionError
from reward_server.sandbox import asserts, values

_TYPES = ("assert", "call", "stdin_stdout")


class BadTests(NotTheCompletionError, ValueError):  # noqa: N818 - named for what is bad
    """Tests that say nothing about a solution: none, malformed, or impossible to run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """Code that asserts, run beside the solution.

    Attributes:
        code: its text.
        prefix: text that the solution may go on with.
    """

    code: str
    prefix: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """A call and its result.

    Attributes:
        target: name of a function, or of a class and a method of an instance.
        arguments: by position.
        keywords: by name.
        expected: the right result, which stays out of the sandbox.
        tolerance: relative and absolute, for numbers at any depth; None for equality.
        as_json: whether a tuple equals a list, and a number as a key its text.
        prefix: text that the solution may go on with.
    """

    target: str
    arguments: list[Any]
    keywords: dict[str, Any]
    expected: Any
    tolerance: float | None = None
    as_json: bool = True
    prefix: str = ""

    def request(self) -> dict[str, Any]:
        """Makes the request for the solution's process."""
        return {
            "operation": "call",
            "target": self.target,
            "arguments": [values.encode(item) for item in self.arguments],
            "keywords": {name: values.encode(item) for name, item in self.keywords.items()},
            "references": False,
            "effects": False,
        }

    def expected_as_json(self) -> Any:
        """Spells the right result as the solution's process would."""
        return values.encode(self.expected)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTest:
    """Input of a whole program and its output.

    Attributes:
        stdin: its input.
        stdout: the right output, which stays out of the sandbox.
        tolerance: relative and absolute, for words that are numbers; None to compare lines.
        prefix: text that the solution may go on with.
    """

    stdin: bytes
    stdout: str
    tolerance: float | None = None
    prefix: str = ""


Test = AssertTest | CallTest | ProgramTest


def read(tests: Any) -> list[Test]:
    """Reads the value of a `tests` column.

    Args:
        tests: a list of dicts, or of code with asserts; or JSON text of one.

    Raises:
        BadTests: there is no test, or one is malformed.
    """
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError as error:
            raise BadTests(f"`tests` must be a list or JSON text, got no JSON: {error}.") from None
        except RecursionError:
            raise BadTests(
                "`tests` must be a list or JSON text, got one nested too deep."
            ) from None
    if isinstance(tests, dict):
        tests = [tests]
    if not isinstance(tests, list | tuple):
        raise BadTests(f"`tests` must be a list, got {type(tests).__name__}.")
    if not tests:
        raise BadTests("`tests` must hold a test, got an empty list.")
    found: list[Test] = []
    for index, test in enumerate(tests):
        try:
            found += _read(test)
        except (BadTests, UnicodeError, RecursionError, values.NotPlainError) as error:
            raise BadTests(f"`tests[{index}]` is invalid: {error}") from None
    return found


def _read(test: Any) -> list[Test]:
    if isinstance(test, str):
        test = {"type": "assert", "code": test}
    if not isinstance(test, dict):
        raise BadTests(f"it must be a dict or code, got {type(test).__name__}.")
    prefix = _text(test, "prefix", default="")
    tolerance = _tolerance(test.get("tolerance"))
    kind = test.get("type")
    if kind == "assert":
        return [_assert(_text(test, "code"), prefix)]
    if kind == "call":
        arguments = _field(test, "args", "arguments", default=[])
        keywords = _field(test, "kwargs", "keywords", default={})
        target = _field(test, "fn", "function")
        if not isinstance(arguments, list | tuple) or not isinstance(keywords, dict):
            raise BadTests("its `arguments` must be a list and its `keywords` a dict.")
        if not isinstance(target, str) or not all(p.isidentifier() for p in target.split(".")):
            raise BadTests(f"its `function` must be a name, got {target!r}.")
        call = CallTest(
            target=target,
            arguments=list(arguments),
            keywords=keywords,
            expected=_field(test, "expected", "result"),
            tolerance=tolerance,
            prefix=prefix,
        )
        values.dumps([call.request(), call.expected_as_json()])  # what can't be sent raises here
        return [call]
    if kind == "stdin_stdout":
        return [
            ProgramTest(
                stdin=_text(test, "input", default="").encode("utf-8", "surrogateescape"),
                stdout=_text(test, "output"),
                tolerance=tolerance,
                prefix=prefix,
            )
        ]
    raise BadTests(f"its `type` must be one of {', '.join(_TYPES)}, got {kind!r}.")


def _assert(code: str, prefix: str) -> Test:
    if (problem := asserts.problem(code)) is not None:
        raise BadTests(f"{problem}.")
    # The form that most tests have needs no second process.
    if (equation := asserts.equation(code)) is not None:
        call = CallTest(
            target=equation.target,
            arguments=equation.arguments,
            keywords=equation.keywords,
            expected=equation.expected,
            as_json=False,
            prefix=prefix,
        )
        values.dumps([call.request(), call.expected_as_json()])
        return call
    return AssertTest(code=code, prefix=prefix)


def _field(test: dict[str, Any], *names: str, **default: Any) -> Any:
    for name in names:
        if name in test:
            return test[name]
    if "default" in default:
        return default["default"]
    raise BadTests(f"it has no `{names[-1]}`.")


def _text(test: dict[str, Any], name: str, **default: str) -> str:
    value = _field(test, name, **default)
    if value is None and "default" in default:
        return default["default"]
    if not isinstance(value, str):
        raise BadTests(f"its `{name}` must be text, got {type(value).__name__}.")
    return value


def _tolerance(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadTests(f"its `tolerance` must be a number >= 0, got {value!r}.")
    return float(value)
