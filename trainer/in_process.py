# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward function of the training process, for `reward_path="allgather"`. No JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InProcessReward:
    """A function and how to call it.

    Attributes:
        fn: called as Tunix and TRL do, `fn(prompts=, completions=, **columns)`; it takes all rows
            and gives a number for each, None or NaN for a row without one (see `none`).
        name: name in metrics; empty takes the function's.
        weight: factor in the weighted total; 0 is reported only.
        messages: whether texts are handed over as chats of one message, as TRL does.
        none: what None means: "fail", the row has no reward; "skip", as in TRL, the function does
            not apply to the row, whose total is the sum of the others.

    Example:
        >>> InProcessReward(fn=lambda completions, **_: [0.0] * len(completions), name="zero").name
        'zero'
    """

    fn: Callable[..., Any]
    name: str = ""
    weight: float = 1.0
    messages: bool = False
    none: str = "fail"
