# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server score`: scores the rows of a file and says how they did."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from reward_server import rows_file, score_table
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.flags import EXIT_FAILED, EXIT_OK
from reward_server.interrupts import Interrupt
from reward_server.rows_file import Row
from reward_server.score_rows import Listener, Scoring, score_rows

_LINE_EVERY_S = 10.0


def score_file(
    file: Path,
    *,
    rewards: RewardsConfig,
    pool: PoolConfig,
    tokenizer_path: str | None,
    out: Path | None,
    only_failed: bool,
) -> int:
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
        The exit code: 0 if all rows have a reward, 1 if not, 128 and the number of the signal that
        stopped it.

    Raises:
        ConfigError: a file, a line or a row's columns; nothing is written then.
        StartError: a function or the tokenizer can't be used.
    """
    rows = rows_file.read(file)
    chosen = _failed(rows, rewards) if only_failed else rows
    had_rewards = sum(row.reward is not None for row in chosen) if only_failed else 0
    progress = _Progress(len(chosen))
    # Before the work: a folder that does not exist must not cost it.
    draft = rows_file.draft(out) if out is not None else None
    problem = None
    try:
        scoring, stopped_by = _score(
            file, chosen, progress, rewards=rewards, pool=pool, tokenizer_path=tokenizer_path
        )
        # With no row scored, the file that is there may hold more than these.
        if draft is not None and (scoring.scored or not scoring.unfinished):
            draft.replace(row.text for row in rows)
    except rows_file.CannotWrite as error:
        problem = error
    finally:
        if draft is not None:
            draft.close()
    weights = {function.name: function.weight for function in rewards.functions}
    print(  # noqa: T201
        score_table.table(
            rows,
            weights=weights,
            scored=scoring.scored,
            kept=len(rows) - len(chosen),
            why=_why(had_rewards, len(chosen), rewards),
            took_s=scoring.took_s,
        )
    )
    if problem is not None:
        raise problem
    if scoring.unfinished:
        _say_what_is_left(scoring, len(chosen), out)
    if stopped_by is not None:
        return 128 + stopped_by
    return EXIT_OK if all(row.reward is not None for row in rows) else EXIT_FAILED


def _score(
    file: Path, rows: list[Row], progress: _Progress, **settings: Any
) -> tuple[Scoring, signal.Signals | None]:
    try:
        return asyncio.run(_run(rows, progress, **settings))
    except ConfigError as error:
        raise ConfigError(f"{file}, {error}") from error
    finally:
        progress.close()


async def _run(
    rows: list[Row], progress: _Progress, **settings: Any
) -> tuple[Scoring, signal.Signals | None]:
    with Interrupt().caught() as interrupt:
        scoring = await score_rows(rows, listener=progress, stop=interrupt.asked, **settings)
    return scoring, interrupt.number


def _say_what_is_left(scoring: Scoring, rows: int, out: Path | None) -> None:
    how = f"reward-server score: {scoring.unfinished}; {scoring.scored} of {rows} rows were scored."
    if out is not None and scoring.scored:
        how += f" Score the others: `reward-server score {out} --only-failed ...`."
    elif out is not None:
        how += f" {out} is as it was."
    _tell(how)


def _why(had_rewards: int, rows: int, rewards: RewardsConfig) -> str:
    """Says why rows are scored again that did not fail, or ""."""
    if not had_rewards:
        return ""
    name = next(function.name for function in rewards.functions if function.per == "group")
    return f"{rows - had_rewards} had failed; {name!r} sees whole groups, which are scored again"


def _failed(rows: list[Row], rewards: RewardsConfig) -> list[Row]:
    groups = {row.group for row in rows if row.reward is None}
    if any(function.per == "group" for function in rewards.functions):
        return [row for row in rows if row.group in groups]
    return [row for row in rows if row.reward is None]


class _Progress(Listener):
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: tqdm[Any] | None = None
        self._last = time.monotonic()

    def waits(self, text: str) -> None:
        _tell(text)

    def warns(self, text: str) -> None:
        _tell(f"warning: {text}")

    def scored(self, done: int, failed: int) -> None:
        now = time.monotonic()
        if self._terminal:
            self._bar = self._bar or tqdm(total=self._rows, desc="score", unit="row")
            self._bar.set_postfix({"failed": failed} if failed else {}, refresh=False)
            self._bar.update(done - self._bar.n)
        elif done == self._rows or now - self._last >= _LINE_EVERY_S:
            self._last = now
            failing = f", {failed} failed" if failed else ""
            _tell(f"scored {done} of {self._rows} rows{failing}")

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()


def _tell(text: str) -> None:
    # Nobody may read this any more; the rows matter more.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201
