# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scores rows with a pool in this process, as a server would: rows to batches, scores to rows."""

from __future__ import annotations

import asyncio
import difflib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reward_server import decode, messages
from reward_server.batch import MAX_GROUP_ROWS, Batch, RewardFnInfo, RowStatus, Scores
from reward_server.config import ConfigError, PoolConfig, RewardsConfig, near
from reward_server.decode import Tokenizer
from reward_server.loaded import Loaded
from reward_server.pool import Pool
from reward_server.rows_file import Row

# A step of training, and no more than a call could bring.
_OPEN_BATCHES = 64
_LOOK_S = 0.2
# Children that load little are there by then; who waits longer wants to know for what.
_TELL_AFTER_S, _TELL_EVERY_S = 2.0, 10.0
NOT_SCORED = "NOT_SCORED"


class Listener:
    """Hears how scoring gets on; does nothing by itself."""

    def waits(self, text: str) -> None:
        """Takes a sentence on what is being waited for."""

    def warns(self, text: str) -> None:
        """Takes a sentence on what is hardly meant so."""

    def scored(self, done: int, failed: int) -> None:
        """Takes the numbers of rows that have a result, and of those of them without a reward."""


async def score_rows(
    rows: Sequence[Row] | Callable[[Sequence[Loaded]], Sequence[Row]],
    *,
    rewards: RewardsConfig,
    pool: PoolConfig,
    tokenizer_path: str | None = None,
    listener: Listener | None = None,
    stop: asyncio.Event | None = None,
    probes: str = "written",
) -> Scoring:
    """Scores rows and puts the results into them.

    Rows that were not reached, because the work was stopped or no child was left, get the status
    NOT_SCORED and the reason.

    Args:
        rows: the rows, or what makes them once the functions are loaded.
        rewards: the functions.
        pool: limits.
        tokenizer_path: tokenizer of rows with `completion_ids`, or None.
        listener: hears how it gets on.
        stop: ends the work early once it is set.
        probes: functions that must score a probe row first, see `ChildSpec`. A made-up row says
            little where there are real ones.

    Raises:
        ConfigError: a row lacks a column or has wrong ids; the message names its line.
        StartError: a function or the tokenizer can't be used.
    """
    tokenizer = Tokenizer.load(tokenizer_path) if tokenizer_path is not None else None
    made = None if callable(rows) else _batches(rows, rewards, tokenizer)
    scorer = Pool(rewards, tokenizer_path, pool, probes=probes, show_output=True)
    listener = listener or Listener()
    run = Scoring(scorer, listener, stop or asyncio.Event())
    try:
        if await run.start():
            found = rows(scorer.loaded) if callable(rows) else rows
            _check_columns(found, rewards, scorer.reward_fns)
            for text in _unset_columns(found, rewards, scorer.loaded):
                listener.warns(text)
            await run.score(made or _batches(found, rewards, tokenizer))
        elif not callable(rows):
            run.give_up(rows, "stopped")
        return run
    finally:
        await scorer.close()


class Scoring:
    """Rows on their way through a pool.

    Attributes:
        took_s: seconds of scoring, without those of starting.
        scored: rows with a result.
        unfinished: why others have none; "" if all have one.
    """

    def __init__(self, pool: Pool, listener: Listener, stop: asyncio.Event) -> None:
        self.took_s = 0.0
        self.scored = 0
        self.unfinished = ""
        self._pool = pool
        self._listener = listener
        self._stop = stop
        self._failed = 0

    async def start(self) -> bool:
        """Starts the pool; returns whether it has, or was stopped."""
        begun = time.monotonic()
        starting = asyncio.ensure_future(self._pool.start())
        stopping = asyncio.ensure_future(self._stop.wait())
        wait_s = _TELL_AFTER_S
        try:
            while True:
                done, _ = await asyncio.wait(
                    (starting, stopping), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                if starting in done:
                    starting.result()
                    return True
                if done:
                    return False
                wait_s = _TELL_EVERY_S
                self._listener.waits(
                    "starting children, which load the functions"
                    f" ({time.monotonic() - begun:.0f} s)"
                )
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.wait((starting, stopping))

    async def score(self, batches: Sequence[tuple[list[Row], Batch]]) -> None:
        """Scores batches until all are through, or the work is stopped."""
        start = time.monotonic()
        gate = asyncio.Semaphore(_OPEN_BATCHES)
        async with asyncio.TaskGroup() as tasks:
            waiting = {tasks.create_task(self._score(gate, *batch)) for batch in batches}
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=_LOOK_S)
                if self._stop.is_set():
                    self._pool.end_calls("stopped")
                self._listener.scored(
                    self.scored + self._pool.rows_done, self._failed + self._pool.rows_failed
                )
        self.took_s = time.monotonic() - start

    async def _score(self, gate: asyncio.Semaphore, members: list[Row], batch: Batch) -> None:
        async with gate:
            if self.unfinished or self._stop.is_set():
                self.give_up(members, self.unfinished or "stopped")
                return
            # No limit for all together: rows have clocks, and a new child takes as long as it does.
            scores = await self._pool.score(batch, timeout_s=math.inf, partial=True)
        reached = scores.statuses > 0
        _finish(members, scores, self._pool.reward_fns)
        self.scored += int(reached.sum())
        self._failed += int((scores.statuses[reached] != RowStatus.OK).sum())
        if scores.unfinished:
            left = [row for row, done in zip(members, reached, strict=True) if not done]
            self.give_up(left, scores.unfinished)

    def give_up(self, rows: Sequence[Row], reason: str) -> None:
        """Marks rows that were not reached."""
        if rows:
            self.unfinished = reason
        names = [function.name for function in self._pool.reward_fns]
        for row in rows:
            row.finish(rewards=dict.fromkeys(names), reward=None, status=NOT_SCORED, error=reason)


def _batches(
    rows: Sequence[Row], rewards: RewardsConfig, tokenizer: Tokenizer | None
) -> list[tuple[list[Row], Batch]]:
    """Puts rows together that can be one batch, so that a key that a row lacks is no column."""
    _check_chats(rows, rewards)
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


def _check_chats(rows: Sequence[Row], rewards: RewardsConfig) -> None:
    """Checks that rows with chats are for functions that take them."""
    of_texts = next((f.name for f in rewards.functions if not f.messages), None)
    for row in rows if of_texts is not None else ():
        for name in row.chats:
            raise ConfigError(
                f"line {row.line}: `{name}` must be text for reward function {of_texts!r}, got a"
                " chat. If the function takes chats, set `messages = true` in its [[reward]]. If it"
                " takes texts, apply the chat template to `prompt`, and take the `content` of"
                " `completion`."
            )


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


def _unset_columns(
    rows: Sequence[Row], rewards: RewardsConfig, loaded: Sequence[Loaded]
) -> list[str]:
    """Says which columns with a default no row has, while it has others that might be meant."""
    present = {name for row in rows for name in row.columns} - {rewards.route_column}
    unclaimed = present.difference(*(found.named_columns for found in loaded))
    warnings = []
    for function, found in zip(rewards.functions, loaded, strict=True):
        others = sorted(present.difference(found.named_columns))
        for name in found.optional_columns:
            meant = others if difflib.get_close_matches(name, others, n=1) else sorted(unclaimed)
            if meant and name not in present:
                warnings.append(
                    f"reward function {function.name!r}: no row has its column `{name}`, so that"
                    f" the default is used{near(name, meant)}."
                )
    return warnings


def _batch(
    rows: Sequence[Row], tokenizer: Tokenizer | None, group_ids: NDArray[np.int64] | None
) -> Batch:
    first = rows[0].values
    columns = [row.columns for row in rows]
    lengths, ids = np.zeros(len(rows), np.int64), np.zeros(0, np.int32)
    if "completion_ids" in first and "completion" in first:  # of no file, see `Row.of_text`
        lengths = np.array([len(row.values["completion_ids"]) for row in rows], np.int64)
        ids = np.array([i for row in rows for i in row.values["completion_ids"]], np.int32)
    elif "completion_ids" in first:
        if tokenizer is None:
            raise ConfigError(
                f"line {rows[0].line}: `completion_ids` must come with `--tokenizer`."
            )
        lengths = np.array([len(row.values["completion_ids"]) for row in rows], np.int64)
        ids = np.array([i for row in rows for i in row.values["completion_ids"]], np.int32)
        ends = [] if tokenizer.end_token_id is None else [tokenizer.end_token_id]
        ids, lengths = decode.cut(ids, lengths, ends, tokenizer.pad_token_id)
        for row, row_ids in zip(rows, decode.split(ids, lengths), strict=True):
            if row_ids and not 0 <= min(row_ids) <= max(row_ids) < decode.TOKEN_ID_LIMIT:
                raise ConfigError(
                    f"line {row.line}: `completion_ids` must be in"
                    f" [0, {decode.TOKEN_ID_LIMIT}), got {min(row_ids)} to {max(row_ids)}."
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
        if not scores.statuses[index]:
            continue
        values = zip(reward_fns, scores.rewards[index], strict=True)
        row.finish(
            rewards={function.name: _plain(value) for function, value in values},
            reward=_plain(totals[index]),
            status=RowStatus(scores.statuses[index]).name,
            error=errors.get(index, ""),
            extra_columns={
                name: value
                for name, column in scores.extra_columns.items()
                if (value := _plain(column[index])) is not None
            },
        )
        if scores.row_s is not None:
            row.seconds = float(scores.row_s[index])
    for error in scores.unweighted_errors:
        rows[error.row].unweighted_errors.append(f"{error.reward_fn}: {error.message}")


def _plain(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None
