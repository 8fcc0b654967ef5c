# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What `deploy/gpu_check.sh` compares: the model, the first step, and where the training came to.

Platforms round differently, and a sampled token may change by it, after which rows differ for
good. So the model is compared by log-probabilities, single rows in the first step only, and
later steps by their mean.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_STEPS = 10
# Log-probabilities after the supervised steps of the recipe, which carry rounding on.
LOGP_TOLERANCE = 0.02
SAME_ROWS = 0.9
FIRST_REWARD_TOLERANCE = 0.05
FIRST_LOSS_TOLERANCE = 0.01
LAST_REWARD_TOLERANCE = 0.15
_MODEL, _METRICS, _ROWS = "model.json", "metrics.jsonl", "rollouts-0.jsonl"

Check = tuple[str, bool, str]


def sample(folder: Path) -> None:
    """Writes the log-probabilities of all right answers by the recipe's first policy."""
    import jax.numpy as jnp  # noqa: PLC0415 - comparing needs no JAX
    import numpy as np  # noqa: PLC0415
    from flax import nnx  # noqa: PLC0415
    from tunix.rl import common  # noqa: PLC0415

    from trainer import peers, recipes  # noqa: PLC0415
    from trainer.recipes import tiny  # noqa: PLC0415

    mesh = peers.make_mesh(None)
    graph, state = nnx.split(recipes.load("tiny").model(mesh, seed=0))
    end = tiny.VOCABULARY.index(tiny.END_TOKEN)
    prompts = [tiny.encode(prompt) for prompt, _ in tiny.problems()]
    answers = [[*tiny.encode(answer), end] for _, answer in tiny.problems()]
    pad = tiny.VOCABULARY.index(tiny.PAD_TOKEN)
    logps = common.compute_per_token_logps(
        graph, state, jnp.array(prompts), jnp.array(answers), pad, end
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MODEL).write_text(json.dumps({"logps": np.asarray(logps).tolist()}))


def compare(reference: Path, device: Path) -> list[Check]:
    """Compares two folders of the check.

    Returns:
        Name, whether they agree, and the numbers, of each comparison.
    """
    expected, found = _logps(reference), _logps(device)
    off = max(_distance(a, b) for a, b in zip(expected, found, strict=True))
    rows, others = (_first_rows(folder) for folder in (reference, device))
    same = [i for i in rows if i in others and rows[i]["completion"] == others[i]["completion"]]
    share = len(same) / max(len(rows), len(others), 1)
    unlike = [i for i in same if rows[i]["rewards"] != others[i]["rewards"]]
    metrics, other = (_metrics(folder) for folder in (reference, device))
    first, loss = (
        [line[key] for line in (metrics[0], other[0])] for key in ("reward_mean", "loss")
    )
    start, end = ([_mean(lines, part) for lines in (metrics, other)] for part in (_START, _END))
    return [
        ("log-probabilities of the first policy", *_within([0.0, off], LOGP_TOLERANCE)),
        ("rows of the first step that are the same", share >= SAME_ROWS, f"{share:.3f}"),
        ("rewards of these rows", bool(same) and not unlike, f"{len(unlike)} differ"),
        ("reward of the first step", *_within(first, FIRST_REWARD_TOLERANCE)),
        ("loss of the first step", *_within(loss, FIRST_LOSS_TOLERANCE)),
        (f"reward of the last {LAST_STEPS} steps", *_within(end, LAST_REWARD_TOLERANCE)),
        ("the device's policy has learnt", end[1] > start[1], f"{start[1]:.3f} -> {end[1]:.3f}"),
    ]


_START, _END = slice(None, LAST_STEPS), slice(-LAST_STEPS, None)


def _mean(lines: list[dict[str, Any]], part: slice) -> float:
    rewards = [float(line["reward_mean"]) for line in lines[part]]
    return sum(rewards) / len(rewards)


def _within(values: list[float], tolerance: float) -> tuple[bool, str]:
    a, b = values
    text = f"{abs(a - b):.2e} apart, {tolerance:g} allowed"
    return _distance(a, b) <= tolerance, text


def _distance(a: float, b: float) -> float:
    # NaN is far from everything, itself included.
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


def _logps(folder: Path) -> list[float]:
    logps = json.loads((folder / _MODEL).read_text(encoding="utf-8"))["logps"]
    return [value for row in logps for value in row]


def _metrics(folder: Path) -> list[dict[str, Any]]:
    text = (folder / _METRICS).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _first_rows(folder: Path) -> dict[int, dict[str, Any]]:
    text = (folder / _ROWS).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return {row["row_id"]: row for row in rows if row["step"] == 0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, or 1 when a comparison fails.
    """
    parser = argparse.ArgumentParser(prog="python -m deploy.local.gpu_check", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    sampling = commands.add_parser("sample", help="write what the first policy thinks")
    sampling.add_argument("--out", type=Path, required=True, metavar="DIR")
    comparing = commands.add_parser("compare", help="compare two folders")
    comparing.add_argument("reference", type=Path)
    comparing.add_argument("device", type=Path)
    flags = parser.parse_args(arguments)
    if flags.command == "sample":
        sample(flags.out)
        return 0
    checks = compare(flags.reference, flags.device)
    for name, good, text in checks:
        print(f"{'ok' if good else 'DIFFERS':<8} {name}: {text}")
    agree = all(good for _, good, _ in checks)
    print("gpu_check: the device agrees with the CPU" if agree else "gpu_check: they DIFFER")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
