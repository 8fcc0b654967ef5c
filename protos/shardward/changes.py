# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What has become of reward functions, in words. Here since trainers and servers both say it."""

from __future__ import annotations

from collections.abc import Sequence

from shardward.v1 import types_pb2


def changes(
    now: Sequence[types_pb2.RewardFnInfo],
    before: Sequence[types_pb2.RewardFnInfo],
    *,
    before_is: str = "was",
) -> str:
    """Says by name in what reward functions differ from others, with both values.

    What decides no reward is left out, such as time limits.

    Args:
        now: functions of one process.
        before: those they are compared with.
        before_is: word before a value of the latter.

    Returns:
        Differences joined by "; ", or "" if there is none.

    Example:
        >>> changes([types_pb2.RewardFnInfo(name="short", weight=0.9)],
        ...         [types_pb2.RewardFnInfo(name="short", weight=0.3)])
        'short: weight 0.9, was 0.3'
    """
    ours, theirs = {fn.name: fn for fn in now}, {fn.name: fn for fn in before}
    found = [f"{name}: added" for name in ours if name not in theirs]
    found += [f"{name}: missing" for name in theirs if name not in ours]
    if not found and list(ours) != list(theirs):
        found.append(f"order {', '.join(ours)}, {before_is} {', '.join(theirs)}")
    for name, fn in ours.items():
        if name in theirs and (text := _changes_of(fn, theirs[name], before_is)):
            found.append(f"{name}: {text}")
    return "; ".join(found)


def _changes_of(now: types_pb2.RewardFnInfo, before: types_pb2.RewardFnInfo, before_is: str) -> str:
    found = []
    if now.weight != before.weight:
        found.append(f"weight {now.weight:g}, {before_is} {before.weight:g}")
    for key in sorted({*now.settings, *before.settings}):
        value, old = (fn.settings.get(key, "default") for fn in (now, before))
        if value == old:
            continue
        hashed = "sha256:" in value + old
        found.append(f"other {key}" if hashed else f"{key} {value}, {before_is} {old}")
    if now.code_digest != before.code_digest:
        found.append("other source code")
    return ", ".join(found)
