# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reward paths refuse, and the arithmetic they share."""

from __future__ import annotations

import numpy as np
import pytest

from trainer import RewardClient, advantage, codec
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


@pytest.mark.parametrize("failed_value", [None, -1.0])
def test_packing_on_the_device_is_packing_on_the_host(failed_value: float | None) -> None:
    """The same bytes, with rows and values that are missing."""
    rewards = codec.RowRewards(
        reward_fns=("a", "b"),
        rewards=np.array([[1, 2], [np.nan, 3], [0.1, np.nan]], np.float32),
        totals=np.array([3, np.nan, 0.1], np.float32),
        valid=np.array([True, False, True]),
        failures=[],
        extra_columns={},
        queue_s=0.0,
        total_s=0.0,
    )
    host = advantage.pack(rewards, failed_value=failed_value)
    device = advantage.pack_arrays(rewards.rewards, rewards.totals, rewards.valid, failed_value)
    assert np.asarray(device).tobytes() == host.tobytes()


@pytest.mark.parametrize(("size", "width"), [(0, 4096), (4096, 4096), (4097, 8192)])
def test_few_widths_are_gathered(size: int, width: int) -> None:
    """A power of two that is enough."""
    assert gathered_width(size) == width
