# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What paths by way of a reward server have in common."""

from __future__ import annotations

from typing import Any

from trainer.arrays import RowArrays
from trainer.client import RewardClient


class ServerPath:
    """A path whose reward functions are those of this process's reward server.

    Attributes:
        name: what it is.
    """

    name: str

    def __init__(self, client: RewardClient, arrays: RowArrays) -> None:
        """Takes the client of this process's reward server, and where the rows lie."""
        self._client = client
        self._arrays = arrays
        client.process_index = arrays.layout.process_index

    @property
    def timeout_s(self) -> float | None:
        """The client's."""
        return self._client.config.timeout_s

    def connect(self, fingerprint: str) -> list[list[Any]]:
        """Asks the server, see `RewardPath.connect`."""
        info = self._client.connect(fingerprint=fingerprint)
        return [[fn.name, fn.weight, dict(fn.settings), fn.code_digest] for fn in info.reward_fns]
