# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scores rows with a pool in this process, as a server would: rows to batches, scores to rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reward_server import decode, messages
from reward_server.batch import MAX_GROUP_ROWS, Batch, RewardFnInfo, RowStatus, Scores
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.pool import Pool
from reward_server.rows_file import Row

_OPEN_BATCHES = 64
_LOOK_S = 0.2
_MARGIN_S = 60.0


async def score_rows(
    rows: Sequence[Row],
    *,
    rewards: RewardsConfig,
    pool: PoolConfig,
    tokenizer_path: str | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> float:
    """Scores rows and puts the results into them.

    Args:
        rows: the rows.
        rewards: the functions.
        pool: limits.
        tokenizer_path: tokenizer of rows with `completion_ids`, or None.
        on_progress: called now and then with the number of rows that have a result.

    Returns:
        The seconds that it took once the pool had started.

    Raises:
        ConfigError: a row lacks a column or has wrong ids; the message names its line.
        StartError: a function or the tokenizer can't be used.
    """
    tokenizer = Tokenizer.load(tokenizer_path) if tokenizer_path is not None else None
    batches = _batches(rows, rewards, tokenizer)
    limit_s = _MARGIN_S + len(rows) * sum(function.timeout_s for function in rewards.functions)
    scorer = Pool(rewards, tokenizer_path, pool)
    gate = asyncio.Semaphore(_OPEN_BATCHES)
    started_rows = 0

    async def run(members: list[Row], batch: Batch) -> None:
        nonlocal started_rows
        async with gate:
            started_rows += batch.rows
            scores = await scorer.score(batch, timeout_s=limit_s)
        _finish(members, scores, scorer.reward_fns)

    await scorer.start()
    try:
        _check_columns(rows, rewards, scorer.reward_fns)
        start = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            waiting = {tasks.create_task(run(*batch)) for batch in batches}
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=_LOOK_S)
                on_progress(started_rows - scorer.rows_missing)
        return time.monotonic() - start
    finally:
        await scorer.close()


def _batches(
    rows: Sequence[Row], rewards: RewardsConfig, tokenizer: Tokenizer | None
) -> list[tuple[list[Row], Batch]]:
    """Puts rows together that can be one batch, so that a key that a row lacks is no column."""
    whole_groups = any(function.per == "group" for function in rewards.functions)
    batches: dict[Any, dict[Any, list[Row]]] = {}
    batch_of: dict[Any, Any] = {}
    for row in rows:
        values = row.values
        ids = "completion_ids" in values
        key = (ids, values.get("step", 0), values.get("mode", "train"), *sorted(row.columns))
        group = batches.setdefault(key, {}).setdefault(row.group, [])
        group.append(row)
        if whole_groups and batch_of.setdefault(row.group, key) != key:
            raise ConfigError(f"line {row.line}: must have the keys of the rows of its group.")
        if whole_groups and len(group) > MAX_GROUP_ROWS:
            raise ConfigError(f"line {row.line}: a group must have <= {MAX_GROUP_ROWS} rows.")
    made = []
    for groups in batches.values():
        # Rows of a group are neighbours.
        members = [row for group in groups.values() for row in group]
        numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups.values()])
        made.append((members, _batch(members, tokenizer, numbers if whole_groups else None)))
    return made


def _check_columns(
    rows: Sequence[Row], rewards: RewardsConfig, reward_fns: Sequence[RewardFnInfo]
) -> None:
    """Checks that rows have the columns of the functions that score them."""
    route = rewards.route_column
    for row in rows:
        columns = row.columns
        for function, info in zip(rewards.functions, reward_fns, strict=True):
            if function.sources and route in columns and columns[route] not in function.sources:
                continue
            for name in info.required_columns:
                if name not in columns:
                    raise ConfigError(
                        f"line {row.line}: `{name}` must be there for reward function"
                        f" {info.name!r}, got {sorted(columns)}."
                    )


def _batch(
    rows: Sequence[Row], tokenizer: Tokenizer | None, group_ids: NDArray[np.int64] | None
) -> Batch:
    first = rows[0].values
    columns = [row.columns for row in rows]
    lengths, ids = np.zeros(len(rows), np.int64), np.zeros(0, np.int32)
    if "completion_ids" in first:
        if tokenizer is None:
            raise ConfigError(
                f"line {rows[0].line}: `completion_ids` must come with `--tokenizer`."
            )
        lengths = np.array([len(row.values["completion_ids"]) for row in rows], np.int64)
        ids = np.array([i for row in rows for i in row.values["completion_ids"]], np.int32)
        ends = [] if tokenizer.end_token_id is None else [tokenizer.end_token_id]
        ids, lengths = decode.cut(ids, lengths, ends, tokenizer.pad_token_id)
        for row, row_ids in zip(rows, decode.split(ids, lengths), strict=True):
            if row_ids and not 0 <= min(row_ids) <= max(row_ids) < tokenizer.vocab_size:
                raise ConfigError(
                    f"line {row.line}: `completion_ids` must be in"
                    f" [0, {tokenizer.vocab_size}), got {min(row_ids)} to {max(row_ids)}."
                )
    return Batch(
        completion_ids=ids,
        completion_lengths=lengths,
        completions=[r.values["completion"] for r in rows] if "completion" in first else None,
        prompts=[row.values["prompt"] for row in rows],
        columns={name: [values[name] for values in columns] for name in columns[0]},
        row_ids=[row.line for row in rows],
        group_ids=group_ids,
        step=first.get("step", 0),
        mode=first.get("mode", "train"),
    )


def _finish(rows: Sequence[Row], scores: Scores, reward_fns: Sequence[RewardFnInfo]) -> None:
    errors = {error.row: f"{error.reward_fn}: {error.message}" for error in scores.errors}
    totals = messages.totals(scores, reward_fns)
    for index, row in enumerate(rows):
        values = zip(reward_fns, scores.rewards[index], strict=True)
        row.finish(
            rewards={function.name: _plain(value) for function, value in values},
            reward=_plain(totals[index]),
            status=RowStatus(scores.statuses[index]).name,
            error=errors.get(index, ""),
        )
        if scores.row_s is not None:
            row.seconds = float(scores.row_s[index])


def _plain(value: np.float32) -> float | None:
    # By its text: 0.1 stays 0.1, which as a float64 it is not.
    return float(str(value)) if np.isfinite(value) else None
