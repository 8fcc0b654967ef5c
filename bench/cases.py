# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scores the built-in reward functions, math-verify and Tunix on the cases. `make cases`.

Prints the tables of docs/rewards.md. A case is misjudged if a function gives another reward than
is expected, raises where it must not, or runs longer than the limit. Each function runs in a
process of its own, which is killed when it hangs.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reward_server.registry import columns_and_params
from reward_server.reward_fns import BUILT_IN

CASES = Path(__file__).parents[1] / "tests" / "data" / "cases"
LIMIT_S = 10.0
MEMORY = 4 * 2**30


def load(kind: str) -> list[dict[str, Any]]:
    """Reads the cases of a kind, long texts put together."""
    cases = []
    for line in (CASES / f"{kind}.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        for field in ("completion", "gold"):
            if f"{field}_parts" in case:
                case[field] = "".join(text * times for text, times in case[f"{field}_parts"])
        case["completion"] = _with_prefix(case)
        cases.append(case)
    return cases


def _with_prefix(case: dict[str, Any]) -> Any:
    prefix = case.get("prompt_prefix")
    return prefix + case["completion"] if prefix else case["completion"]


def function_name(case: dict[str, Any]) -> str:
    """Names the built-in function that a case is about."""
    if str(case["gold"]).startswith("format:"):
        return "format_strict"
    if case["kind"] == "gsm8k" or (
        case["kind"] == "decode" and ("####" in case["completion"] or "<ans" in case["completion"])
    ):
        return "gsm8k"
    return "math"


def built_in(name: str) -> Callable[..., Any]:
    """Imports a built-in reward function."""
    module, _, function = BUILT_IN[name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _math_verify(completion: Any, gold: Any) -> float:
    from math_verify import parse, verify

    golds = gold if isinstance(gold, list) else [gold]
    return max(float(verify(parse(f"${g}$"), parse(completion))) for g in golds)


def _tunix(completion: Any, gold: Any) -> float:
    from tunix.utils.math_rewards import math_reward

    return float(math_reward([""], [completion], [gold])[0])


def _ours(name: str) -> Callable[[Any, Any], float]:
    function = built_in(name)

    def score(completion: Any, gold: Any) -> float:
        columns = {} if name.startswith("format") else {"answer": [gold]}
        return float(function([""], [completion], **columns)[0])

    return score


WAYS: dict[str, Callable[[str], Callable[[Any, Any], float]]] = {
    "Shardward": _ours,
    "math-verify 0.9.0": lambda _: _math_verify,
    "Tunix 0.1.7": lambda _: _tunix,
}


def _serve(connection: Connection, way: str, name: str) -> None:
    import resource

    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    score = WAYS[way](name)
    connection.send("ready")
    while True:
        completion, gold = connection.recv()
        try:
            connection.send(score(completion, gold))
        except BaseException as error:  # noqa: BLE001 - TimeoutException is one
            connection.send(type(error).__name__)


class Process:
    """One way of scoring in a process that is started again after it was killed."""

    def __init__(self, way: str, name: str) -> None:
        """Starts the process."""
        self._arguments = (way, name)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, *self._arguments), daemon=True)
        self._process.start()
        there.close()
        self._here.recv()

    def score(self, completion: Any, gold: Any) -> float | str:
        """Returns the reward, or the name of what went wrong."""
        try:
            self._here.send((completion, gold))
            if self._here.poll(LIMIT_S):
                found: float | str = self._here.recv()
                return found
            outcome = "timeout"
        except (EOFError, OSError):
            outcome = "died"
        self.close()
        self._start()
        return outcome

    def close(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.join()
        self._here.close()


def rows(case: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yields completion, reference and expected reward of each row of a case."""
    if case.get("batch"):
        yield from zip(case["completion"], case["gold"], case["expected"], strict=True)
    else:
        yield case["completion"], case["gold"], case["expected"]


def is_right(expected: Any, outcome: float | str) -> bool:
    """Says whether an outcome is what is expected."""
    if expected == "invalid-gold":
        return isinstance(outcome, str) and outcome not in ("timeout", "died")
    if expected == "timeout-handled":
        return isinstance(outcome, float)
    return outcome == expected


def measure(way: str, name: str, cases: list[dict[str, Any]]) -> list[str]:
    """Returns the cases that a way of scoring misjudges."""
    process = Process(way, name)
    wrong = [
        case["id"]
        for case in cases
        if not all(is_right(e, process.score(c, gold)) for c, gold, e in rows(case))
    ]
    process.close()
    return wrong


def contracts() -> str:
    """Returns the table of the built-in functions, their columns and parameters."""
    lines = ["| function | what it gives | columns | parameters |", "| --- | --- | --- | --- |"]
    for name in BUILT_IN:
        function = built_in(name)
        taken, params = columns_and_params(function)
        columns = [f"`{p.name}`" for p in taken]
        values = [f"`{p.name}={p.default!r}`" for p in params]
        summary = (function.__doc__ or "").partition("\n")[0].rstrip(".")
        cells = (f"`{name}`", summary, ", ".join(columns) or "-", ", ".join(values) or "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table() -> str:
    """Returns the table of misjudged cases."""
    clear = [
        case
        for kind in ("math", "gsm8k", "format", "robustness", "decode")
        for case in load(kind)
        if case["expected"] != "convention"
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in clear:
        groups.setdefault((function_name(case), case["kind"]), []).append(case)
    lines = ["| function | cases | " + " | ".join(WAYS) + " |", "| --- | --- | --- | --- | --- |"]
    for (name, kind), cases in groups.items():
        cells = [
            f"{len(measure(way, name, cases))} of {len(cases)} wrong" if name == "math"
            or way == "Shardward" else "-"
            for way in WAYS
        ]  # fmt: skip
        lines.append(f"| `{name}` | {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def speed(repeats: int = 3) -> str:
    """Returns rows a second of `math` and math-verify in this process, on the same rows."""
    import time

    from bench import reward_fns
    from bench import rows as bench_rows

    data = bench_rows.make(256, 8, 150, 420)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(bench_rows.tokenizer_folder() / "tokenizer.json"))
    texts = tokenizer.decode_batch(
        [[int(i) for i in row if i != bench_rows.END] for row in data.ids]
    )
    out = []
    for name, function in (("math", built_in("math")), ("math-verify", reward_fns.math_verify)):
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            function(data.prompts, texts, answer=data.answers)
            best = min(best, time.process_time() - start)
        out.append(f"{name}: {len(texts) / best:,.0f} rows a second of CPU")
    return "\n".join(out)


def main() -> None:
    """Prints the table, and with `--speed` the rows a second."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(contracts() + "\n")
    print(table())
    if "--speed" in sys.argv[1:]:
        print("\n" + speed())


if __name__ == "__main__":
    main()
