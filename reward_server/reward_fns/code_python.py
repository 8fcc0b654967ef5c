# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of Python code by tests."""

from __future__ import annotations

import atexit
import re
import threading
from typing import Any

from reward_server.grading_errors import BadParameter
from reward_server.reward_fns import guard
from reward_server.sandbox import checks
from reward_server.sandbox.grading import count_passed
from reward_server.sandbox.sandbox import Sandbox, SandboxError

EXAMPLE: dict[str, Any] = {
    "prompt": "Write a function `square`.",
    "completion": "```python\ndef square(x):\n    return x * x\n```",
    "columns": {"tests": [{"type": "assert", "code": "assert square(3) == 9"}]},
}

_CREDITS = ("all", "fraction")
_LANGUAGES = ("python", "python3", "py", "py3")
_OPENING = re.compile(
    r"(?P<indent>[ \t]*)(?:<[^<>\s]{1,40}>[ \t]*)?(?P<fence>`{3,}|~{3,})[ \t]*\{?\.?"
    r"(?P<language>[\w+#-]*)"
)
# What may follow on the line of a closing fence: an end token or a closing tag.
_TAGS = r"[ \t]*(?:<[^<>\s]{1,40}>[ \t]*)*"
_CLOSING = re.compile(rf"[ \t]*(?P<fence>`{{3,}}|~{{3,}}){_TAGS}")
_END_TOKEN = re.compile(r"(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>)\Z")
_MAX_END_TOKENS = 8
_CLOSING_INDENT = 3

_sandboxes: dict[str, Sandbox] = {}
_lock = threading.Lock()


def code_python(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    tests: list[Any],
    *,
    sandbox: str = "auto",
    credit: str = "all",
    test_timeout_s: float = 5.0,
    **_: Any,
) -> list[float]:
    r"""Rewards Python code that passes the tests of its row.

    Contract: `credit="all"` gives 1.0 if every test passes, else 0.0; `"fraction"` gives the share
    that passes. The code runs in a sandbox (`docs/sandbox.md`), expected values never do.
    `tests` is a list of dicts, or JSON text of one:

    - `{"type": "assert", "code": "assert f(2) == 4"}`, or just its code: plain data is compared
      with Python's `==`. Code that is more than one such line runs in a process of its own, where
      calls of the solution give plain data, and other objects of it cannot be compared.
    - `{"type": "call", "function": "f", "arguments": [2], "result": 4}`: a tuple equals a list,
      and 1 equals 1.0 and True, as JSON tests cannot tell. `"Class.method"` makes an instance.
      `fn`, `args` and `expected` are the same fields.
    - `{"type": "stdin_stdout", "input": "2\n", "output": "4\n"}`: a program, which must exit with
      code 0. White space at the end of lines and of the output is ignored; leading blanks, case
      and the spelling of numbers count.

    `"tolerance"` (calls, programs) is relative and absolute, for numbers at any depth.
    `"prefix"` is code that the completion goes on with, such as imports. Only the standard library
    can be imported.

    The code is the last block of the answer that is fenced as Python, else the last without a
    language, else the whole text; a fence that is not closed ends with the text. The answer comes
    after the last `</think>`; an unclosed think block earns 0.0, and so do code that does not
    compile and a test that runs longer than `test_timeout_s`. Tests that have not ended after 80 %
    of the entry's `timeout_s` fail, too: make it larger than all tests of a right solution take.
    No tests, or tests that cannot be run, raise, so the row has an error and no reward.

    Example:
        `code_python(["4?"], ["print(4)"], [[{"type": "stdin_stdout", "output": "4"}]])` gives
        `[1.0]`.
    """
    if credit not in _CREDITS:
        raise BadParameter(f"`credit` must be one of {', '.join(_CREDITS)}, got {credit!r}.")
    rewards: list[float] = []
    for completion, row in zip(completions, tests, strict=True):
        wanted = checks.read(row)
        code = extract(completion)
        with _lock:
            passed = _passed(sandbox, code, wanted, test_timeout_s, stop=credit == "all")
        full = float(passed == len(wanted))
        rewards.append(full if credit == "all" else passed / len(wanted))
    return rewards


@atexit.register
def _close() -> None:
    while _sandboxes:
        _sandboxes.popitem()[1].close()


def _passed(kind: str, code: str, tests: list[checks.Test], timeout_s: float, *, stop: bool) -> int:
    # Made even for a row without code, so that a server without a sandbox does not start.
    if kind not in _sandboxes:
        _sandboxes[kind] = Sandbox(kind)
    if not code.strip():
        return 0
    try:
        return count_passed(
            _sandboxes[kind],
            code,
            tests,
            timeout_s=timeout_s,
            total_s=guard.wait_s(),
            stop=stop,
        )
    except SandboxError:
        # The next row gets a new one.
        _sandboxes.pop(kind).close()
        raise


def extract(completion: str) -> str:
    r"""Finds the code of a completion; "" if there is none.

    Example:
        `extract("So:\n```python\nx = 1\n```")` gives `"x = 1\n"`.
    """
    answer = completion.rpartition("</think>")[2]
    if "<think>" in answer.partition("```")[0]:
        return ""
    blocks = _blocks(answer)
    for languages in (_LANGUAGES, ("",)):
        for language, code in reversed(blocks):
            if language in languages:
                return code
    return "" if blocks else _without_end_tokens(answer)


def _without_end_tokens(text: str) -> str:
    for _ in range(_MAX_END_TOKENS):
        stripped = text.rstrip()
        # Only the end is searched, so that the time stays linear.
        if (match := _END_TOKEN.search(stripped[-50:])) is None:
            break
        text = stripped[: -len(match[0])]
    return text


def _blocks(text: str) -> list[tuple[str, str]]:
    """Finds fenced blocks line by line, so that a fence inside a text of the code is none."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for raw in text.split("\n"):
        line = raw.removesuffix("\r")
        if opening is None:
            opening, lines = _opening(line), []
        elif _closes(line, opening):
            blocks.append(_block(opening, lines))
            opening = None
        else:
            lines.append(line)
    if opening is not None and lines:
        lines[-1] = _without_end_tokens(lines[-1])
        blocks.append(_block(opening, lines))
    return blocks


def _opening(line: str) -> re.Match[str] | None:
    match = _OPENING.match(line)
    # A line with a second fence opens nothing.
    return None if match is None or "`" in line[match.end() :] else match


def _closes(line: str, opening: re.Match[str]) -> bool:
    closing = _CLOSING.fullmatch(line)
    indent = len(opening["indent"])
    return (
        closing is not None
        and closing["fence"].startswith(opening["fence"])
        and len(line) - len(line.lstrip()) <= indent + _CLOSING_INDENT
    )


def _block(opening: re.Match[str], lines: list[str]) -> tuple[str, str]:
    indent = opening["indent"]
    code = "".join(f"{line.removeprefix(indent)}\n" for line in lines)
    return opening["language"].lower(), code
