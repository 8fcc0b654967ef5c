# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts and their rewards as JSON lines, in a file of each process. Host side, no JAX.

`reward-server score` reads these files.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.codec import LocalRollouts, RowRewards, completion_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

_OWN_KEYS = (
    *("step", "mode", "row_id", "group_id", "prompt", "completion"),
    *("completion_ids", "rewards", "reward", "status", "error"),
)


class RolloutDump:
    """Writes the rows that a process owns, a line each, once their rewards have come.

    When a file is there already, the lines of the steps before the first one written are kept: a
    run that goes on from a checkpoint adds to it.
    """

    def __init__(self, file: Path, *, decode: Callable[[list[int]], str]) -> None:
        """Takes the file, and what decodes the ids of a completion."""
        self._file = file
        self._decode = decode
        self._started = False
        self._failed = False

    def write(self, rollouts: LocalRollouts, rewards: RowRewards) -> None:
        """Writes rows; when that fails it is logged, once, and no more is written.

        An error here would be one process's own, while the others go on to wait for it.
        """
        if self._failed:
            return
        try:
            if not self._started:
                self._keep_before(rollouts.step)
                self._started = True
            lines = "".join(
                json.dumps(row) + "\n" for row in _rows(rollouts, rewards, self._decode)
            )
            with self._file.open("a", encoding="utf-8") as out:
                out.write(lines)
        except Exception as error:  # noqa: BLE001 - a full disk must not end the training
            self._failed = True
            logger.warning("rollouts are not dumped any more file=%s: %s", self._file, error)

    def _keep_before(self, step: int) -> None:
        kept = []
        if self._file.exists():
            with self._file.open(encoding="utf-8") as lines:
                # Whole lines: the last one of a killed run may be cut.
                kept = [x for x in lines if x.endswith("\n") and json.loads(x)["step"] < step]
        self._file.write_text("".join(kept), encoding="utf-8")


def decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    """Finds how to decode ids to the text that reward functions get, special tokens left out."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decode: Callable[[list[int]], str] = tokenizer.decode if backend is None else backend.decode
    return decode


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
