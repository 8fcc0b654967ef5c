# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a built-in reward function raises when it is not the completion that is wrong.

Whatever else such a function raises while it grades makes the row 0.0, see
`reward_server.reward_fns.guard`.
"""

from __future__ import annotations


class NotTheCompletionError(Exception):
    """The data, the user's parameters or the machine leave a row without a reward."""


class UngradableError(Exception):
    """A library cannot grade the completion, which so is wrong; the cause says why."""


class BadParameter(NotTheCompletionError, ValueError):  # noqa: N818 - the trainer's log shows the name
    """A parameter of the rewards file cannot be used; the message names it."""
