# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the rows that were sampled at once earned, as a report. All values are global.

Legend: B global rows, b local rows, F reward functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trainer.advantage import HostScores
from trainer.codec import LocalRollouts, completion_lengths


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What the rows of one sampling call earned, over all processes.

    A step has one such call, or several where Tunix's micro-batches of rollout and
    log-probabilities are smaller than the batch.

    Attributes:
        step: global training step.
        mode: "train" or "eval".
        rows: global rows.
        rows_failed: global rows without a reward.
        reward_mean: mean total over rows that have one; NaN if none has.
        per_function: mean of each reward function over rows that have its value; NaN likewise.
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
    scores: HostScores,
    lengths: NDArray[np.integer],
    names: Sequence[str],
    *,
    step: int,
    mode: str,
    reward_wait_s: float,
    samples: list[tuple[str, str, float]],
) -> StepReport:
    """Makes the report of a sampling call.

    Args:
        scores: of all rows.
        lengths: tokens of the completions of all rows, [B].
        names: the F reward functions.
        step: as in `StepReport`.
        mode: as there.
        reward_wait_s: as there.
        samples: as there.
    """
    return StepReport(
        step=step,
        mode=mode,
        rows=len(scores.scored),
        rows_failed=int((~scores.scored).sum()),
        reward_mean=_mean(scores.totals[scores.counts]),
        per_function={
            name: _mean(scores.values[scores.has[:, i], i]) for i, name in enumerate(names)
        },
        completion_length_mean=float(lengths.mean()),
        reward_wait_s=reward_wait_s,
        samples=samples,
    )


def _mean(x: NDArray[np.float64]) -> float:
    return float(x.mean()) if x.size else float("nan")


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
        packed: float32 [b, 3 F + 4], their rewards, see `trainer.advantage.pack`.
        decode: gives the text of ids, special tokens too.
        count: how many, from the first.

    Returns:
        (prompt, completion, total) of each; NaN for a row without a reward.
    """
    ids = owned.completion_ids[:count]
    return [
        (prompt, decode(row[:size].tolist()), float(total) if ok else float("nan"))
        for prompt, row, size, (total, *_, ok) in zip(
            owned.prompts[:count],
            ids,
            completion_lengths(ids, owned.end_token_ids),
            packed[:count, -4:],
            strict=True,
        )
    ]
