# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server rewards test`: runs a function on its example and on hostile completions."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_server import config, hostile, registry
from reward_server.batch import StartError
from reward_server.config import ConfigError, PoolConfig, Probe, RewardFnConfig, RewardsConfig
from reward_server.rewards_cli import gave_none, outcome
from reward_server.rows_file import Row
from reward_server.score_rows import score_rows


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
        entry = RewardFnConfig(fn=fn)
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


def try_out(
    entry: RewardFnConfig, *, columns: dict[str, Any], completion: str | None, pool: PoolConfig
) -> bool:
    """Runs a function in a pool and prints what it gave for each input.

    Args:
        entry: the function.
        columns: values that replace or add to those of its example.
        completion: a completion in place of its example's.
        pool: limits.

    Returns:
        Whether it crashed, hung and raised on none of them.

    Raises:
        StartError: it can't be loaded, or failed its example.
    """
    found = _load(entry)
    entry, probe = (entry, Probe()) if found is None else (found.config, found.probe)
    probe = dataclasses.replace(
        probe,
        completion=probe.completion if completion is None else completion,
        columns={**probe.columns, **columns},
    )
    if columns or completion is not None:
        entry = dataclasses.replace(entry, probe=probe)
    inputs = {"example": probe.completion, **hostile.completions(probe.completion)}
    rows = [
        Row(
            line=number,
            text="",
            values={
                "prompt": probe.prompt,
                "completion": text,
                "group_id": number,
                **probe.columns,
            },
        )
        for number, text in enumerate(inputs.values(), 1)
    ]
    try:
        asyncio.run(score_rows(rows, rewards=RewardsConfig(functions=(entry,)), pool=pool))
    except StartError as error:
        if found is None or found.has_probe or entry.probe is not None:
            raise
        raise StartError(f"{error} Or pass --completion and --column.") from error
    width = max(map(len, inputs))
    for name, row in zip(inputs, rows, strict=True):
        print(f"{name:{width}}  {row.seconds:8.4f} s  {outcome(row)}")  # noqa: T201
    failed = sum(row.reward is None and not gave_none(row) for row in rows)
    print(f"\n{failed} of {len(rows)} inputs failed")  # noqa: T201
    return not failed


def _load(entry: RewardFnConfig) -> registry.RewardFn | None:
    """Finds how the function is called and its example, by importing it here."""
    for per in dict.fromkeys((entry.per, "list", "row")):
        tried = dataclasses.replace(entry, per=per)
        try:
            return registry.load(tried)
        except (Exception, SystemExit):  # noqa: BLE001, S112 - the pool finds it again and says it
            continue
    return None
