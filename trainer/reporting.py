# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a micro-batch earned, as Tunix's metrics and as a report. All values are global.

Legend: B global rows, b local rows, T tokens, F reward functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool
from numpy.typing import NDArray

from trainer.codec import LocalRollouts, completion_lengths


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one micro-batch earned, over all processes.

    Attributes:
        step: global training step.
        mode: "train" or "eval".
        rows: global rows.
        rows_failed: global rows without a reward.
        reward_mean: mean total over rows that have one.
        per_function: mean of each reward function over rows that have its value.
        completion_length_mean: tokens, the end token counted.
        reward_wait_s: seconds this process waited for rewards and for nothing else.
        samples: (prompt, completion, total) of a few rows that this process owns.
    """

    step: int
    mode: str
    rows: int
    rows_failed: int
    reward_mean: float
    per_function: dict[str, float]
    completion_length_mean: float
    reward_wait_s: float
    samples: list[tuple[str, str, float]]


def make_report(
    metrics: dict[str, Any],
    lengths: dict[str, Any],
    names: Sequence[str],
    *,
    step: int,
    mode: str,
    rows: int,
    reward_wait_s: float,
    samples: list[tuple[str, str, float]],
) -> StepReport:
    """Makes the report of a micro-batch.

    Args:
        metrics: of `trainer.advantage.reward_step`.
        lengths: of `length_stats`.
        names: the F reward functions.
        step: as in `StepReport`.
        mode: as there.
        rows: as there.
        reward_wait_s: as there.
        samples: as there.
    """
    return StepReport(
        step=step,
        mode=mode,
        rows=rows,
        rows_failed=int(metrics["n_failed"]),
        reward_mean=float(metrics["mean"]),
        per_function={
            name: float(mean) for name, mean in zip(names, metrics["fn_mean"], strict=True)
        },
        completion_length_mean=float(lengths["mean"]),
        reward_wait_s=reward_wait_s,
        samples=samples,
    )


def sample_texts(
    owned: LocalRollouts,
    packed: NDArray[np.float32],
    decode: Callable[[list[int]], str],
    *,
    count: int = 4,
) -> list[tuple[str, str, float]]:
    """Decodes a few rows for people to look at.

    Args:
        owned: rows of this process.
        packed: float32 [b, 2 F + 3], their rewards, see `trainer.advantage.pack`.
        decode: gives the text of ids, special tokens too.
        count: how many, from the first.

    Returns:
        (prompt, completion, total) of each; NaN for a row without a reward.
    """
    ids = owned.completion_ids[:count]
    return [
        (prompt, decode(row[:size].tolist()), float(total) if ok else float("nan"))
        for prompt, row, size, (total, _, ok) in zip(
            owned.prompts[:count],
            ids,
            completion_lengths(ids, owned.end_token_ids),
            packed[:count, -3:],
            strict=True,
        )
    ]


@jax.jit
def length_stats(completion_mask: Bool[Array, "B T"]) -> dict[str, jax.Array]:
    """Computes mean, largest and smallest number of tokens of the completions."""
    lengths = completion_mask.sum(axis=-1)
    return {"mean": lengths.mean(), "max": lengths.max(), "min": lengths.min()}


def tunix_metrics(
    metrics: dict[str, Any], lengths: dict[str, Any], names: Sequence[str], *, length_prefix: str
) -> dict[str, tuple[Any, Any]]:
    """Names values as Tunix does, each with the function that joins those of a step.

    Args:
        metrics: of `trainer.advantage.reward_step`.
        lengths: of `length_stats`.
        names: the F reward functions.
        length_prefix: what the names of the lengths begin with.
    """
    values: dict[str, tuple[Any, Any]] = {
        "rewards/score/mean": (metrics["mean"], np.mean),
        "rewards/score/max": (metrics["max"], np.max),
        "rewards/score/min": (metrics["min"], np.min),
        "rewards/sum": (metrics["row_sum"], np.mean),
        "rewards/mean": (metrics["row_mean"], np.mean),
        "rewards/max": (metrics["value_max"], np.max),
        "rewards/min": (metrics["value_min"], np.min),
        "rewards/rows_failed": (metrics["n_failed"], np.sum),
        f"{length_prefix}/mean_length": (lengths["mean"], np.mean),
        f"{length_prefix}/max_length": (lengths["max"], np.max),
        f"{length_prefix}/min_length": (lengths["min"], np.min),
    }
    if "groups_without_signal" in metrics:
        values["rewards/groups_without_signal"] = (metrics["groups_without_signal"], np.mean)
    for i, name in enumerate(names):
        values[f"rewards/{name}"] = (metrics["fn_mean"][i], np.mean)
        values[f"rewards/{name}/mean"] = (metrics["fn_mean"][i], np.mean)
        values[f"rewards/{name}/std"] = (metrics["fn_std"][i], np.mean)
        values[f"rewards/{name}/n_valid"] = (metrics["fn_n_valid"][i], np.sum)
    return values
