# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reward paths refuse, and the arithmetic they share."""

from __future__ import annotations

import pytest

from trainer import RewardClient
from trainer.gather import gathered_width
from trainer.paths.choose import check_reward_fns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rpc", [len], "all"), "`reward_path` must be 'grpc'"),
        (("allgather", [len], "some"), "`score_on` must be"),
        (("grpc", [len], "all"), "`reward_fns` must be a RewardClient, got list"),
        (("callback", [len], "all"), "`reward_fns` must be a RewardClient, got list"),
        (("allgather", [], "all"), "`reward_fns` must be a list of functions"),
        (("allgather", RewardClient("unix:/tmp/s"), "all"), "`reward_fns` must be a list"),
        (("allgather", ["math"], "all"), "`reward_fns` must hold functions"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple, message: str) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match=message):
        check_reward_fns(*arguments)


@pytest.mark.parametrize(("size", "width"), [(0, 4096), (4096, 4096), (4097, 8192)])
def test_few_widths_are_gathered(size: int, width: int) -> None:
    """A power of two that is enough."""
    assert gathered_width(size) == width
