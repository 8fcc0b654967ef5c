# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What rewards must be to be used. Here since trainers and servers both take them from others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardward.v1 import types_pb2


def fault(batch: types_pb2.RewardBatch, row_ids: Sequence[int]) -> str:
    """Says what keeps the rewards of rows from being used.

    Each field has its size; a row is either OK, with a finite total, or has no total and one error
    that says why; exact values round to the others. A status that is unknown is one that is not OK.

    Args:
        batch: the rewards.
        row_ids: of the rows that were sent, for messages.

    Returns:
        The first fault, in words, or "".

    Example:
        >>> fault(types_pb2.RewardBatch(reward_fns=["f"], statuses=[1, 1]), [7])
        '`statuses` must be of 1 row x 1 function, 1 in all, got 2'
    """
    rows, functions = len(row_ids), len(batch.reward_fns)
    sizes = {
        "statuses": (len(batch.statuses), rows, True),
        "rewards": (len(batch.rewards), 4 * rows * functions, True),
        "totals": (len(batch.totals), 4 * rows, True),
        "exact_rewards": (len(batch.exact_rewards), 8 * rows * functions, False),
        "exact_totals": (len(batch.exact_totals), 8 * rows, False),
        **{
            f"extra_columns[{column.name[:80]!r}]": (len(column.values), 4 * rows, True)
            for column in batch.extra_columns
        },
    }
    of = f"{rows} row{'s' * (rows != 1)} x {functions} function{'s' * (functions != 1)}"
    for name, (got, want, required) in sizes.items():
        if got != want and (required or got):
            unit = "" if name == "statuses" else " bytes"
            return f"`{name}` must be of {of}, {want}{unit} in all, got {got}"
    ok = np.asarray(batch.statuses, np.int64) == types_pb2.ROW_STATUS_OK
    failed, named = np.flatnonzero(~ok).tolist(), [error.row_index for error in batch.errors]
    if failed != named:
        return (
            f"`errors` must be one for each of the {len(failed)} rows that are not OK, in their"
            f" order, got {len(named)}"
        )
    if not {error.reward_fn for error in batch.errors} <= set(batch.reward_fns):
        return f"`errors` must name functions among {list(batch.reward_fns)}"
    rewards, totals = (
        _Values(batch.rewards, batch.exact_rewards),
        _Values(batch.totals, batch.exact_totals),
    )
    for name, values in (("rewards", rewards), ("totals", totals)):
        if not values.agree():
            return f"`exact_{name}` must be the values of `{name}`"
    # On the device a total begins with a float32.
    finite = np.isfinite(totals.rounded) & np.isfinite(totals.exact)
    if not np.array_equal(finite, ok) or not np.isnan(totals.exact[~ok]).all():
        row = int(np.flatnonzero((finite != ok) | ~(finite | np.isnan(totals.exact)))[0])
        state = "OK" if ok[row] else "not OK"
        return f"row {row_ids[row]} is {state} but its total is {totals.exact[row]}"
    return ""


def exact(rounded: bytes, values: bytes) -> NDArray[np.float64]:
    """Values as float64; those of a sender that has no exact ones are float32."""
    return _Values(rounded, values).exact


class _Values:
    """Values of a field, as float32 and as exact as they were sent."""

    def __init__(self, rounded: bytes, exact: bytes) -> None:
        self.rounded = np.frombuffer(rounded, "<f4")
        values = np.frombuffer(exact, "<f8") if exact else self.rounded
        self.exact: NDArray[np.float64] = values.astype(np.float64)

    def agree(self) -> bool:
        """Whether the ones are the others, rounded."""
        with np.errstate(over="ignore"):
            return np.array_equal(self.exact.astype(np.float32), self.rounded, equal_nan=True)
