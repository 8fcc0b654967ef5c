# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The summary of scored rows: means, failures by reason, slowest rows."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping, Sequence

from reward_server.printable import printable
from reward_server.rows_file import Row

_SLOWEST = 5
_FAILURES = 5
_SHOWN = 200


def table(
    rows: Sequence[Row], *, weights: Mapping[str, float], scored: int, kept: int, took_s: float
) -> str:
    """Makes the summary.

    Args:
        rows: all rows of the file.
        weights: of the functions, by name and in order.
        scored: rows that were scored now.
        kept: rows that were left as they are.
        took_s: seconds that this took.
    """
    left = f", kept: {kept}" if kept else ""
    speed = f", {took_s:.2f} s, {scored / took_s:.0f} rows a second" if took_s else ""
    lines = [f"rows scored: {scored}{left}{speed}", "", *_means(rows, weights)]
    for part in (_failed(rows), _slowest(rows)):
        lines += ["", *part] if part else []
    return "\n".join(lines)


def _means(rows: Sequence[Row], weights: Mapping[str, float]) -> list[str]:
    values: dict[str, list[float]] = {name: [] for name in weights}
    for row in rows:
        rewards = row.values.get("rewards")
        for name, value in rewards.items() if isinstance(rewards, dict) else ():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(value)
    cells = [("function", "weight", "mean", "values")]
    for name, found in values.items():
        weight = f"{weights[name]:g}" if name in weights else "-"
        cells.append((name, weight, _mean(found), str(len(found))))
    totals = [row.reward for row in rows if row.reward is not None]
    cells.append(("reward", "", _mean(totals), str(len(totals))))
    width = max(len(name) for name, *_ in cells)
    return [f"{name:{width}}  {w:>6}  {m:>9}  {n:>6}" for name, w, m, n in cells]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.4f}" if values else "-"


def _failed(rows: Sequence[Row]) -> list[str]:
    failed = [row for row in rows if row.reward is None]
    reasons = collections.Counter(str(row.values.get("status")) for row in failed)
    lines = [
        f"failed {reason}: {count} of {len(rows)} rows ({count / len(rows):.1%})"
        for reason, count in reasons.most_common()
    ]
    lines += [
        f"  line {row.line}: {printable(str(row.values['error']), _SHOWN)}"
        for row in failed[:_FAILURES]
    ]
    more = len(failed) - _FAILURES
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _slowest(rows: Sequence[Row]) -> list[str]:
    timed = [(row.seconds, row) for row in rows if row.seconds is not None]
    slowest = sorted(timed, key=lambda pair: -pair[0])[:_SLOWEST]
    lines = [f"  line {row.line}: {s:.4f} s  {row.values['status']}" for s, row in slowest]
    return ["slowest rows", *lines] if lines else []
