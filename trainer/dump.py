# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts and their rewards as JSON lines, in a file of each process. Host side, no JAX.

`reward-server score` reads these files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.codec import LocalRollouts, RowRewards, completion_lengths
from trainer.json_lines import JsonLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_OWN_KEYS = (
    *("step", "mode", "row_id", "group_id", "prompt", "completion"),
    *("completion_ids", "rewards", "reward", "status", "error"),
)


class RolloutDump:
    """Writes the rows that a process owns, a line each, once their rewards have come.

    When a file is there already, the lines of the steps before the first one written are kept: a
    run that goes on from a checkpoint adds to it. What can't be written is logged, see
    `trainer.json_lines`.
    """

    def __init__(self, file: Path, *, decode: Callable[[list[int]], str]) -> None:
        """Takes the file, and what decodes the ids of a completion."""
        self._lines = JsonLines(file)
        self._decode = decode
        self._started = False

    def write(self, rollouts: LocalRollouts, rewards: RowRewards) -> None:
        """Writes rows; never raises."""
        if not self._started:
            self._started = True
            self._lines.keep(lambda line: bool(line["step"] < rollouts.step))
        self._lines.write(_rows(rollouts, rewards, self._decode))


def _rows(
    rollouts: LocalRollouts, rewards: RowRewards, decode: Callable[[list[int]], str]
) -> Iterator[dict[str, Any]]:
    for name in rollouts.columns:
        if name in _OWN_KEYS:
            raise ValueError(f"column {name!r} must have another name to be dumped")
    failures = {failure.row_id: failure for failure in rewards.failures}
    ids, ends = rollouts.completion_ids, rollouts.end_token_ids
    lengths = completion_lengths(ids, ends)
    drop = [*ends, rollouts.pad_token_id]
    prefixes = rollouts.completion_prefixes or [""] * len(ids)
    for i, row_id in enumerate(rollouts.row_ids.tolist()):
        kept = ids[i, : lengths[i]]
        failure = failures.get(row_id)
        by_function = zip(rewards.reward_fns, rewards.rewards[i], strict=True)
        yield {
            "step": rollouts.step,
            "mode": rollouts.mode,
            "row_id": row_id,
            "group_id": int(rollouts.group_ids[i]),
            "prompt": rollouts.prompts[i],
            "completion": prefixes[i] + decode(kept[~np.isin(kept, drop)].tolist()),
            **{name: _plain(values[i]) for name, values in rollouts.columns.items()},
            "rewards": {name: _number(value) for name, value in by_function},
            "reward": _number(rewards.totals[i]),
            "status": "OK" if failure is None else failure.status,
            "error": None if failure is None else f"{failure.reward_fn}: {failure.message}",
        }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _number(value: np.float32) -> float | None:
    # By its text: 0.1 stays 0.1, which as a float64 it is not.
    return float(str(value)) if np.isfinite(value) else None
