# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server rewards test`: runs a function on its example and on hostile completions."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reward_server import config, hostile
from reward_server.batch import StartError
from reward_server.config import ConfigError, PoolConfig, Probe, RewardFnConfig, RewardsConfig
from reward_server.loaded import Loaded
from reward_server.printable import printable
from reward_server.rewards_cli import gave_none, outcome
from reward_server.rows_file import Row
from reward_server.score_rows import Listener, score_rows

_SHOWN = 60
_NO_EXAMPLE = (
    "It has no EXAMPLE, so that the example was made up. Pass --completion and --column, or write"
    ' EXAMPLE = {"completion": "...", "columns": {...}} into its file.'
)
# Lines and groups of rows that stand in no file.
_NUMBERS = itertools.count(1)
_COMPARES = (
    "It gives other values for several rows at once than for each alone: it compares rows. Training"
    ' calls it with one row at a time, unless you set `per = "group"`.'
)


def entry_of(fn: str, rewards: RewardsConfig | None, *, timeout_s: float | None) -> RewardFnConfig:
    """Finds what to test.

    Args:
        fn: a function, or with `rewards` the name of one of them.
        rewards: a rewards file, whose settings are then used.
        timeout_s: limit for a row, or None for the one of the rewards file.

    Raises:
        ConfigError: there is none of that name.
    """
    if rewards is not None:
        names = [function.name for function in rewards.functions]
        if fn not in names:
            raise ConfigError(f"{fn!r} is none of `--rewards`{config.near(fn, names)}.")
        entry = dataclasses.replace(rewards.functions[names.index(fn)], sources=())
    else:
        if config.is_file(fn):
            file, _, name = fn.rpartition(":")
            fn = f"{Path(file).resolve()}:{name}"
        entry = RewardFnConfig(fn=fn, per="auto")
    return entry if timeout_s is None else dataclasses.replace(entry, timeout_s=timeout_s)


def columns_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Reads NAME=TEXT and NAME:=JSON.

    Raises:
        ConfigError: one is neither.
    """
    columns: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        plain = name.removesuffix(":")
        if not equals or not plain:
            raise ConfigError(f"`--column` must be NAME=TEXT or NAME:=JSON, got {argument!r}.")
        try:
            columns[plain] = text if name == plain else json.loads(text)
        except ValueError as error:
            raise ConfigError(f"`--column {plain}` must be JSON after `:=`: {error}.") from error
    return columns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a function did with its example and with hostile completions.

    Attributes:
        inputs: scored rows of each input by its name.
        has_probe: whether somebody wrote the example, or it was made up.
        compares_rows: whether it needs groups, and is called with one row at a time.
    """

    inputs: dict[str, list[Row]]
    has_probe: bool
    compares_rows: bool

    @property
    def failed(self) -> dict[str, list[Row]]:
        """Inputs that made it raise, hang or crash."""
        return {name: rows for name, rows in self.inputs.items() if any(map(_has_failed, rows))}

    @property
    def verdict(self) -> str:
        """How many inputs failed, in words."""
        return f"{len(self.failed)} of {len(self.inputs)} inputs failed"

    @property
    def hints(self) -> list[str]:
        """What to do about it, where that is known."""
        hints = []
        if not self.has_probe and "example" in self.failed:
            hints.append(_NO_EXAMPLE)
        if self.compares_rows:
            hints.append(_COMPARES)
        return hints


def try_out(
    entry: RewardFnConfig, *, columns: dict[str, Any], completion: str | None, pool: PoolConfig
) -> bool:
    """Runs a function in a pool and prints what it returned for each input.

    Args:
        entry: the function.
        columns: values that replace or add to those of its example.
        completion: a completion in place of its example's.
        pool: limits.

    Returns:
        Whether it crashed, hung and raised on none of them.

    Raises:
        StartError: it can't be loaded.
        ConfigError: it takes no such column.
    """
    trial = run_trial(entry, columns=columns, completion=completion, pool=pool, tell=print)
    width = max(map(len, trial.inputs))
    for name, rows in trial.inputs.items():
        seconds = sum(row.seconds or 0.0 for row in rows)
        print(f"{name:{width}}  {seconds:8.4f} s  {outcome_of(rows)}")  # noqa: T201
    print("\n".join(["", trial.verdict, *trial.hints]))  # noqa: T201
    return not trial.failed


def run_trial(
    entry: RewardFnConfig,
    *,
    pool: PoolConfig,
    columns: dict[str, Any] | None = None,
    completion: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Trial:
    """Runs a function in a pool.

    A function of groups gets groups: the rows of its example, and those with one more.

    Args:
        entry: the function.
        pool: limits.
        columns: values that replace or add to those of its example.
        completion: a completion in place of its example's.
        tell: takes what is tested, once the function is loaded.

    Raises:
        StartError: it can't be loaded.
        ConfigError: it takes no such column.
    """
    inputs: dict[str, list[Row]] = {}
    alone: list[Row] = []
    found: list[Loaded] = []

    def make(loaded: Sequence[Loaded]) -> list[Row]:
        found.extend(loaded)
        example = _Example.of(loaded[0], columns or {}, completion)
        tell(example.text(entry))
        inputs.update(example.inputs())
        if example.per == "list":
            alone.extend(example.rows(example.groups()))
        return [row for rows in (*inputs.values(), alone) for row in rows]

    # As it is: neither its weight nor what a None means changes what it returns.
    entry = dataclasses.replace(entry, weight=1.0, none="fail")
    _run(make, RewardsConfig(functions=(entry,)), pool)
    return Trial(
        inputs=inputs,
        has_probe=found[0].has_probe,
        compares_rows=_compares_rows(alone, entry, pool),
    )


def _run(rows: Any, rewards: RewardsConfig, pool: PoolConfig) -> None:
    asyncio.run(score_rows(rows, rewards=rewards, pool=pool, probes="none", listener=_Listener()))


class _Listener(Listener):
    def waits(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201


@dataclasses.dataclass(frozen=True, slots=True)
class _Example:
    """The example of a function, and what becomes of it."""

    per: str
    probe: Probe

    @classmethod
    def of(cls, loaded: Loaded, columns: dict[str, Any], completion: str | None) -> _Example:
        for name in columns:
            if loaded.columns is not None and name not in loaded.columns:
                takes = ", ".join(loaded.columns) or "none"
                raise ConfigError(
                    f"`--column {name}` must be a column that the function takes: {takes}."
                )
        probe = loaded.probe
        changed: dict[str, Any] = {"columns": {**probe.columns, **columns}}
        if completion is not None:
            changed |= {"completion": completion, "completions": ()}
        return cls(loaded.per, dataclasses.replace(probe, **changed))

    def text(self, entry: RewardFnConfig) -> str:
        """Says what is tested: settings, and the example."""
        settings = [f'per = "{self.per}"', f"timeout_s = {entry.timeout_s:g}"]
        settings += [f"{name} = {value!r}" for name, value in entry.params.items()]
        texts = self.probe.group if self.per == "group" else [self.probe.completion]
        shown = {"completion": self.probe.completion} if len(texts) == 1 else {"completions": texts}
        row = {**shown, **self.probe.columns}
        parts = [f"{name} {printable(repr(value), _SHOWN)}" for name, value in row.items()]
        return f"{entry.name}: {', '.join(settings)}\nexample: {', '.join(parts)}\n"

    def inputs(self) -> dict[str, list[Row]]:
        """Rows of each input by its name."""
        whole = self.per == "group"
        base = self.probe.group if whole else []
        texts = {"example": base or [self.probe.completion]}
        for name, text in hostile.completions(self.probe.completion).items():
            texts[name] = [*base, text]
        return dict(zip(texts, map(self.rows, ([t] for t in texts.values())), strict=True))

    def groups(self) -> list[list[str]]:
        """Harmless groups, on which a function that compares rows shows that it does."""
        return [self.probe.group, [self.probe.completion, "I don't know.", ""]]

    def rows(self, groups: Sequence[Sequence[str]]) -> list[Row]:
        """Rows of these groups."""
        return [
            Row.of_text(
                next(_NUMBERS),
                text,
                {"prompt": self.probe.prompt, "group_id": group, **self.probe.columns},
            )
            for group, texts in ((next(_NUMBERS), texts) for texts in groups)
            for text in texts
        ]


def outcome_of(rows: Sequence[Row]) -> str:
    """Says in a few words what the function gave for an input."""
    if len(rows) == 1:
        return outcome(rows[0])
    failed = [row for row in rows if _has_failed(row)]
    if failed:
        return outcome(failed[0])
    values = [f"{row.reward:.4g}" if row.reward is not None else "None" for row in rows]
    return f"[{', '.join(values)}]"


def _has_failed(row: Row) -> bool:
    return row.reward is None and not gave_none(row)


def _compares_rows(alone: Sequence[Row], entry: RewardFnConfig, pool: PoolConfig) -> bool:
    """Whether a function gives other values for several rows at once than for each alone.

    Values that differ from call to call say nothing.
    """
    if not alone or any(row.reward is None for row in alone):
        return False
    calls = [
        [
            dataclasses.replace(row, values={**row.values, "group_id": f"{row.group}, {call}"})
            for row in alone
        ]
        for call in range(2)
    ]
    entry = dataclasses.replace(entry, per="group")
    try:
        _run([*calls[0], *calls[1]], RewardsConfig(functions=(entry,)), pool)
    except StartError:  # async functions see no groups
        return False
    first, second = ([row.reward for row in rows] for rows in calls)
    return None not in first and first == second and first != [row.reward for row in alone]
