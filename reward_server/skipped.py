# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that every function with a weight has skipped: they have no reward, and must not get 0.0."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from reward_server.batch import RowError, RowStatus, Scores
from reward_server.config import RewardFnConfig


def fail_skipped(scores: Scores, functions: Sequence[RewardFnConfig]) -> Scores:
    """Marks rows INVALID to which no function applied.

    Only functions with `none = "skip"` can skip a row; without one nothing changes.

    Args:
        scores: of all functions, in their order.
        functions: F of them.
    """
    counted = [function.weight != 0 for function in functions]
    skipping = [f.name for f in functions if f.weight != 0 and f.none == "skip"]
    if not skipping or not len(scores.rewards):
        return scores
    nothing = np.isnan(scores.rewards[:, counted]).all(axis=1)
    nothing &= scores.statuses == RowStatus.OK
    if not nothing.any():
        return scores
    statuses = scores.statuses.copy()
    statuses[nothing] = RowStatus.INVALID
    errors = [
        RowError(
            row=int(row),
            reward_fn=skipping[0],
            status=RowStatus.INVALID,
            message="returned None, and no other function with a weight has a value",
        )
        for row in np.flatnonzero(nothing)
    ]
    errors = sorted([*scores.errors, *errors], key=lambda error: error.row)
    return dataclasses.replace(scores, statuses=statuses, errors=errors)
