# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Format reward of bare short integers."""

from __future__ import annotations

import re
from typing import Any

EXAMPLE: dict[str, Any] = {"prompt": "2+2=", "completion": "4", "columns": {}}

_SHORT_INTEGER = re.compile(r"-?[0-9]{1,6}")


def integer_format(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    **_: Any,
) -> list[float]:
    """Rewards completions that are nothing but a short integer, right or wrong.

    Contract: 1.0 if the whole completion is an optional minus and 1 to 6 ASCII digits, else 0.0.

    Example:
        `integer_format(["2+2="], ["5"])` gives `[1.0]`.
    """
    return [float(bool(_SHORT_INTEGER.fullmatch(completion))) for completion in completions]
