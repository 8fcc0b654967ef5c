# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of Tunix and engines of one process: two processes train as one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.multiprocess.conftest import Run, launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(900)]

LORA = {"lora": True}
TWICE = {"iterations": 2, "rollout": {"temperature": 0.7}}
ENGINE = {"engine": ""}
CASES: dict[str, dict[str, Any]] = {
    "lora twice": {**LORA, **TWICE, "beta": 0.1},
    "lora whole": {**LORA, "steps": 3},
    "engine": ENGINE,
    "engine, replicas apart": {**ENGINE, "order": [0, 2, 1, 3]},
    "engine twice": {**ENGINE, **TWICE, "training": {"mini_batch_size": 4}},
    "engine whole": {**ENGINE, **LORA, "steps": 3},
    "shuffled": {
        "seeds": [7, 7],
        "training": {"mini_batch_size": 8, "train_micro_batch_size": 2},
    },
    "axes": {"mesh": [2, 2, 1], "axes": ["data", "fsdp", "tp"], "row_axes": ["data", "fsdp"]},
    "many": {
        "steps": 3,
        "max_steps": 2,
        "eval_every": 1,
        "rollout": {"top_k": 5, "top_p": 0.8, "eos_tokens": [1, 5, 9], "seed": 11},
        "eval_rollout": {"max_tokens_to_generate": 6, "temperature": 0.1},
    },
}
FAULTS = {
    "raises": "OSError: the engine is broken",
    "few": "the engine must return 16 completions, got 15.",
    "long": "completion 1 of the engine must have at most 4 ids, got",
    "range": "completion 1 of the engine must have ids in [0, 32), got 32.",
    "no end": "completion 1 of the engine must end with an end token [1] or have 4 ids, got 1",
    "weights": "OSError: no memory for weights",
}


def scenarios(folder: Path, processes: int) -> list[dict[str, Any]]:
    """What a run of so many processes does."""
    cases = {**CASES, "many": {**CASES["many"], "logs": str(folder / "logs")}}
    kept = {**LORA, "steps": 3, "checkpoint": str(folder / "kept")}
    cases |= {"lora stopped": {**kept, "stop_at": 1}, "lora resumed": kept}
    kept = {**ENGINE, **kept, "checkpoint": str(folder / "kept_engine")}
    cases |= {"engine stopped": {**kept, "stop_at": 1}, "engine resumed": kept}
    if processes == 2:
        cases |= {fault: {"engine": fault} for fault in FAULTS}
        cases["two seeds"] = {"seeds": [1, 2]}
    return [
        {"run": "option_scenarios:train", "name": name, **case} for name, case in cases.items()
    ]
