# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a child says of a function once it has imported it: in other processes nobody may."""

from __future__ import annotations

import dataclasses
from typing import Any

from reward_server.config import Probe


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A function that a child has imported.

    Attributes:
        per: how it is called: "list", "row" or "group".
        columns: columns that it takes, or None for all.
        named_columns: those that it names.
        optional_columns: those of them with a default.
        probe: row that it should be able to score.
        has_probe: whether somebody wrote that row, or it was made up.
    """

    per: str
    columns: tuple[str, ...] | None
    named_columns: tuple[str, ...]
    optional_columns: tuple[str, ...]
    probe: Probe
    has_probe: bool

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Loaded:
        """Makes one of what `dataclasses.asdict` and JSON made of it."""
        columns = values["columns"]
        return cls(
            per=values["per"],
            columns=None if columns is None else tuple(columns),
            named_columns=tuple(values["named_columns"]),
            optional_columns=tuple(values["optional_columns"]),
            probe=Probe(**values["probe"]),
            has_probe=values["has_probe"],
        )
