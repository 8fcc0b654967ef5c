# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run shows and keeps: the progress bar and the metrics file. No JAX.

Only process 0 shows and writes; the others count, as a run's totals are equal on all of them.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from trainer.json_lines import JsonLines

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from trainer.reporting import StepReport

logger = logging.getLogger(__name__)

# Rewards of single steps are noisy: the first and the last of a run are means over this many.
WINDOW = 10
_LINE_EVERY_S = 10.0
_FILE = "metrics.jsonl"
# Samples are printed with the end of their prompt; its beginning is the same for all.
_PROMPT_TAIL = 50


class Progress:
    """Collects step reports, shows a bar and writes metrics.jsonl.

    Each line has the report of one step; its loss is known only when the update has run, so lines
    come one or two steps late.

    Attributes:
        rewards: mean reward of each step; NaN where no row had one.
        rows: rows scored by all processes.
        rows_failed: rows without a reward.
        reward_wait_s: seconds that this process waited for rewards.
        done: steps of the whole run that are done, those before the checkpoint too.
        accuracy_before: of the policy before the first step, if it was measured.
    """

    def __init__(
        self,
        *,
        steps: int,
        folder: Path | None,
        show: bool,
        show_samples: int = 0,
        show_samples_every: int = 1,
        done: int = 0,
    ) -> None:
        """Opens the file and the bar.

        Args:
            steps: steps of the run.
            folder: folder of metrics.jsonl, or None.
            show: whether to show a bar (on a terminal) or lines (elsewhere).
            show_samples: samples to print after a step.
            show_samples_every: steps from one such step to the next; the first is one.
            done: steps of the checkpoint that the run goes on from; their lines are kept.
        """
        self.rewards: list[float] = []
        self.rows = 0
        self.rows_failed = 0
        self.reward_wait_s = 0.0
        self.accuracy_before: float | None = None
        self._steps = steps
        self._stack = contextlib.ExitStack()
        self.done = done
        self._file: JsonLines | None = None
        if folder is not None:
            self._file = JsonLines(folder / _FILE)
            self._take_over(self._file.keep(lambda line: _Kept.of(line).step < done))
        self._terminal = show and sys.stderr.isatty()
        self._lines = show and not self._terminal
        self._show_samples = show_samples if show else 0
        self._show_samples_every = show_samples_every
        self._bar = self._stack.enter_context(
            tqdm(total=steps, initial=done, desc="GRPO", unit="step", disable=not self._terminal)
        )
        if self._terminal:
            # Log lines go above the bar, not into it.
            self._stack.enter_context(logging_redirect_tqdm())
        self._waiting: collections.deque[dict[str, Any]] = collections.deque()
        self._loss: float | None = None
        self._start = self._last_step = time.monotonic()
        self._last_line = 0.0

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Writes what is left and closes."""
        while self._waiting:
            self._write(self._waiting.popleft(), None)
        self._stack.close()

    def _take_over(self, lines: list[dict[str, Any]]) -> None:
        """Counts the lines of the steps that a checkpoint has seen."""
        for line in lines:
            kept = _Kept.of(line)
            self.rewards.append(kept.reward)
            self.rows += kept.rows
            self.rows_failed += kept.rows_failed
            self.reward_wait_s += kept.reward_wait_s
            self.accuracy_before = line.get("accuracy_before", self.accuracy_before)
        if len(lines) < self.done:
            logger.warning(
                "metrics of steps before are missing lines=%d steps=%d: totals are of the rest",
                len(lines),
                self.done,
            )

    def start_clock(self) -> None:
        """Starts to count the time of steps."""
        self._start = self._last_step = time.monotonic()

    @property
    def _window(self) -> int:
        return max(1, min(WINDOW, len(self.rewards) // 2))

    @property
    def reward_first(self) -> float:
        """Mean reward of the first steps."""
        return _mean(self.rewards[: self._window])

    @property
    def reward_last(self) -> float:
        """Mean reward of the last steps."""
        return _mean(self.rewards[-self._window :])

    def on_step(self, report: StepReport) -> None:
        """Takes the report of a step."""
        now = time.monotonic()
        step_s, self._last_step = now - self._last_step, now
        self.rewards.append(report.reward_mean)
        self.rows += report.rows
        self.rows_failed += report.rows_failed
        self.reward_wait_s += report.reward_wait_s
        self._waiting.append(
            {
                "step": report.step,
                "reward_mean": report.reward_mean,
                "per_function": report.per_function,
                "rows": report.rows,
                "rows_failed": report.rows_failed,
                "completion_length_mean": report.completion_length_mean,
                "reward_wait_s": round(report.reward_wait_s, 6),
                "step_s": round(step_s, 6),
                "wall_s": round(now - self._start, 6),
                "samples": report.samples,
            }
        )
        if self.done == 0:
            self._waiting[-1]["accuracy_before"] = self.accuracy_before
        self.done += 1
        self._show(report, report.rows / max(step_s, 1e-9))

    def on_loss(self, loss: float) -> None:
        """Takes the loss of the oldest step that has none yet."""
        self._loss = loss
        if self._waiting:
            self._write(self._waiting.popleft(), loss)

    def _write(self, line: dict[str, Any], loss: float | None) -> None:
        if self._file is not None:
            self._file.write([{**line, "loss": loss}])

    def _show(self, report: StepReport, rows_per_s: float) -> None:
        # None until the first update has run.
        loss = "" if self._loss is None else f" loss={self._loss:.2g}"
        shown = (
            f"reward={report.reward_mean:.3f}{loss}"
            f" rows/s={rows_per_s:.0f} reward_wait={report.reward_wait_s * 1e3:.0f}ms"
        )
        done, now = self.done, time.monotonic()
        due = (done - 1) % self._show_samples_every == 0
        for prompt, completion, reward in report.samples[: self._show_samples] if due else ():
            text = f"{prompt[-_PROMPT_TAIL:]!r} -> {completion!r}"
            tqdm.write(f"  step {done} reward {reward:.2f}: {text}", file=sys.stderr)
        if self._terminal:
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update()
        elif self._lines and (done in (1, self._steps) or now - self._last_line >= _LINE_EVERY_S):
            self._last_line = now
            print(f"step {done}/{self._steps} {shown}", file=sys.stderr, flush=True)  # noqa: T201


class _Kept(NamedTuple):
    """What a line of a metrics file adds to the totals."""

    step: int
    reward: float
    rows: int
    rows_failed: int
    reward_wait_s: float

    @classmethod
    def of(cls, line: dict[str, Any]) -> _Kept:
        """Reads a line.

        Raises:
            KeyError, TypeError, ValueError: it is no line of a metrics file.
        """
        reward = line["reward_mean"]
        return cls(
            step=int(line["step"]),
            reward=float("nan") if reward is None else float(reward),
            rows=int(line["rows"]),
            rows_failed=int(line["rows_failed"]),
            reward_wait_s=float(line["reward_wait_s"]),
        )


def _mean(values: list[float]) -> float:
    """Mean of the values that are numbers: a step whose rows all failed has none."""
    there = [value for value in values if math.isfinite(value)]
    return sum(there) / len(there) if there else float("nan")
