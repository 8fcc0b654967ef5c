# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The summary of scored rows: figures of functions, signal, failures by message, slowest rows."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Mapping, Sequence

from reward_server.printable import printable
from reward_server.rows_file import Row

_SLOWEST = 5
_FAILURES = 5
_SHOWN = 200
_NAME = 40
_HEADINGS = ("mean", "std", "min", "max", "values")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def table(
    rows: Sequence[Row],
    *,
    weights: Mapping[str, float],
    scored: int,
    kept: int,
    took_s: float,
    why: str = "",
) -> str:
    """Makes the summary.

    Args:
        rows: all rows of the file.
        weights: of the functions, by name and in order.
        scored: rows that were scored now.
        kept: rows that were left as they are.
        took_s: seconds that this took.
        why: why these rows were scored, where that is not plain.
    """
    left = f", kept: {kept}" if kept else ""
    speed = f", {took_s:.2f} s, {scored / took_s:.0f} rows a second" if took_s else ""
    lines = [f"rows scored: {scored}{left}{speed}", *([why] if why else [])]
    lines += ["", *_means(rows, weights)]
    for part in (_signal(rows, weights), _failed(rows), _unweighted(rows), _slowest(rows)):
        lines += ["", *part] if part else []
    return "\n".join(lines)


def _values(rows: Sequence[Row], weights: Mapping[str, float]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in weights}
    for row in rows:
        rewards = row.values.get("rewards")
        for name, value in rewards.items() if isinstance(rewards, dict) else ():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(value)
    return values


def _means(rows: Sequence[Row], weights: Mapping[str, float]) -> list[str]:
    cells: list[tuple[str, ...]] = [("function", "weight", *_HEADINGS)]
    for name, found in _values(rows, weights).items():
        cells.append((name, f"{weights[name]:g}" if name in weights else "-", *_figures(found)))
    totals = [row.reward for row in rows if row.reward is not None]
    cells.append(("reward", "", *_figures(totals)))
    logged: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.extra_columns.items():
            logged.setdefault(name, []).append(value)
    cells += [(name, "logged", *_figures(found)) for name, found in logged.items()]
    names = [printable(name, _NAME) for name, *_ in cells]
    width = max(map(len, names))
    return [
        f"{name:{width}}  {weight:>6}" + "".join(f"  {figure:>8}" for figure in figures)
        for name, (_, weight, *figures) in zip(names, cells, strict=True)
    ]


def _figures(values: Sequence[float]) -> tuple[str, ...]:
    if not values:
        return ("-", "-", "-", "-", "0")
    std = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-"
    mean, least, most = statistics.fmean(values), min(values), max(values)
    return (f"{mean:.4f}", std, f"{least:.4f}", f"{most:.4f}", str(len(values)))


def _signal(rows: Sequence[Row], weights: Mapping[str, float]) -> list[str]:
    """Says where rewards tell no rows apart, from which nothing can be learned."""
    lines = [
        f"{name}: constant, {values[0]:g} in all {len(values)} rows: no signal"
        for name, values in _values(rows, weights).items()
        if len(values) > 1 and len(set(values)) == 1
    ]
    groups: dict[object, list[float]] = {}
    for row in rows:
        if row.reward is not None:
            groups.setdefault(row.group, []).append(row.reward)
    several = [rewards for rewards in groups.values() if len(rewards) > 1]
    flat = sum(len(set(rewards)) == 1 for rewards in several)
    if several:
        share = f"{flat} of {len(several)} ({flat / len(several):.1%})"
        lines.append(f"groups whose rewards are all the same, without signal: {share}")
    return lines


def _failed(rows: Sequence[Row]) -> list[str]:
    failed = [row for row in rows if row.reward is None]
    reasons = collections.Counter(str(row.values.get("status")) for row in failed)
    lines = [
        f"failed {reason}: {count} of {len(rows)} rows ({count / len(rows):.1%})"
        for reason, count in reasons.most_common()
    ]
    found = [(row.line, str(row.values["status"]), str(row.values["error"])) for row in failed]
    return [*lines, *_by_message(found)]


def _unweighted(rows: Sequence[Row]) -> list[str]:
    """Says what functions with weight 0 failed with."""
    failed = [row for row in rows if row.unweighted_errors]
    if not failed:
        return []
    found = [(row.line, "", message) for row in failed for message in row.unweighted_errors]
    share = f"{len(failed)} of {len(rows)} rows ({len(failed) / len(rows):.1%})"
    return [f"failed with weight 0, which fails no row: {share}", *_by_message(found)]


def _by_message(failures: Sequence[tuple[int, str, str]]) -> list[str]:
    """Counts failures: line, status and message of each.

    Quoted texts don't tell messages apart: they are others in each row.
    """
    kinds: dict[str, list[tuple[int, str, str]]] = {}
    for failure in failures:
        kinds.setdefault(_QUOTED.sub("'...'", " ".join(failure[1:])), []).append(failure)
    most = sorted(kinds.values(), key=len, reverse=True)
    lines = []
    for same in most[:_FAILURES]:
        line, _, message = same[0]
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        lines.append(f"  line {line}{more}: {printable(message, _SHOWN)}")
    rest = sum(map(len, most[_FAILURES:]))
    return [*lines, f"  and {rest} with other messages"] if rest else lines


def _slowest(rows: Sequence[Row]) -> list[str]:
    timed = [(row.seconds, row) for row in rows if row.seconds is not None]
    slowest = sorted(timed, key=lambda pair: -pair[0])[:_SLOWEST]
    lines = [f"  line {row.line}: {s:.4f} s  {row.values['status']}" for s, row in slowest]
    return ["slowest rows", *lines] if lines else []
