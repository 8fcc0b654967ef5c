# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server score`: scores the rows of a file and says how they did."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path

from tqdm import tqdm

from reward_server import rows_file, score_table
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.rows_file import Row
from reward_server.score_rows import score_rows

_LINE_EVERY_S = 10.0


def score_file(
    file: Path,
    *,
    rewards: RewardsConfig,
    pool: PoolConfig,
    tokenizer_path: str | None,
    out: Path | None,
    only_failed: bool,
) -> bool:
    """Scores a file's rows, writes them out and prints a summary.

    Args:
        file: JSON lines, see `rows_file.read`.
        rewards: the functions.
        pool: limits.
        tokenizer_path: tokenizer of rows with `completion_ids`, or None.
        out: file for the scored rows, which may be `file`, or None.
        only_failed: leaves rows as they are that have a reward; where a function sees whole groups,
            only those of groups that all have one.

    Returns:
        Whether all rows have a reward.

    Raises:
        ConfigError: a file, a line or a row's columns; nothing is written then.
        StartError: a function or the tokenizer can't be used.
    """
    rows = rows_file.read(file)
    chosen = _failed(rows, rewards) if only_failed else rows
    with contextlib.ExitStack() as stack:
        # Before the work: a folder that does not exist must not cost it.
        written = stack.enter_context(rows_file.replacing(out)) if out is not None else None
        took_s = 0.0
        if chosen:
            progress = stack.enter_context(contextlib.closing(_Progress(len(chosen))))
            scoring = score_rows(
                chosen,
                rewards=rewards,
                pool=pool,
                tokenizer_path=tokenizer_path,
                on_progress=progress.show,
            )
            try:
                took_s = asyncio.run(scoring)
            except ConfigError as error:
                raise ConfigError(f"{file}, {error}") from error
        if written is not None:
            written.writelines(f"{row.text}\n" for row in rows)
    weights = {function.name: function.weight for function in rewards.functions}
    print(score_table.table(rows, weights=weights, scored=len(chosen), took_s=took_s))  # noqa: T201
    return all(row.reward is not None for row in rows)


def _failed(rows: list[Row], rewards: RewardsConfig) -> list[Row]:
    groups = {row.group for row in rows if row.reward is None}
    if any(function.per == "group" for function in rewards.functions):
        return [row for row in rows if row.group in groups]
    return [row for row in rows if row.reward is None]


class _Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(total=rows, desc="score", unit="row", disable=not self._terminal)
        self._last = time.monotonic()

    def show(self, done: int) -> None:
        """Shows how many rows have a result."""
        self._bar.update(done - self._bar.n)
        now = time.monotonic()
        if not self._terminal and (done == self._rows or now - self._last >= _LINE_EVERY_S):
            self._last = now
            print(f"scored {done} of {self._rows} rows", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()
