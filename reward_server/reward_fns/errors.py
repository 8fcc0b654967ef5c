# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a reward function raises when it is the dataset that is wrong."""

from __future__ import annotations

from reward_server.grading_errors import NotTheCompletionError

_SHOWN = 60


class BadGold(NotTheCompletionError, ValueError):  # noqa: N818 - the name is what the trainer's log shows
    """The reference of a row cannot be graded against: an error of the data, neither 0 nor 1.

    Args:
        column: name of the column.
        rule: what its value must be.
        value: what it is.
    """

    def __init__(self, column: str, rule: str, value: object) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        super().__init__(f"`{column}` must be {rule}, got {shown}.")
