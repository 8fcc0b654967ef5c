# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The picture of a run: reward by step, and accuracy before and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 10


def draw(metrics: Path, summary: dict[str, Any], file: Path) -> None:
    """Draws the mean reward of each step with a moving average.

    Args:
        metrics: metrics.jsonl of the run.
        summary: what the launcher found out.
        file: PNG to write.
    """
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    # None, where no row of a step had a reward, becomes NaN: a gap.
    rewards = np.array([line["reward_mean"] for line in lines], np.float64)
    steps = np.arange(1, len(rewards) + 1)
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes.plot(steps, rewards, color="tab:blue", alpha=0.35, linewidth=1, label="reward, each step")
    if len(rewards) >= WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(rewards, WINDOW)
        average = np.ma.masked_invalid(windows).mean(axis=1).filled(np.nan)
        label = f"reward, mean of {WINDOW} steps"
        axes.plot(steps[WINDOW - 1 :], average, color="tab:blue", linewidth=2, label=label)
    if summary["accuracy_before"] is not None:
        before, after = summary["accuracy_before"], summary["accuracy_after"]
        marks = axes.scatter(
            [0, len(rewards) + 1], [before, after], color="tab:orange", zorder=3, label="accuracy"
        )
        marks.set_clip_on(False)
        for x, y, left in ((0, before, 6), (len(rewards) + 1, after, -32)):
            axes.annotate(f"{y:.2f}", (x, y), textcoords="offset points", xytext=(left, -13))
    mesh = ", ".join(f"{axis}={size}" for axis, size in summary["mesh"].items())
    axes.set_title(
        f"GRPO, recipe {summary['recipe']}: {summary['processes']} processes, mesh {mesh}"
    )
    axes.set_xlabel("training step")
    accuracy = " / accuracy" if summary["accuracy_before"] is not None else ""
    axes.set_ylabel(f"mean reward{accuracy}")
    if not (rewards < 0).any():
        # A rise from 0.9 to 1 is not to look like one from 0.
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(file)
    plt.close(figure)
