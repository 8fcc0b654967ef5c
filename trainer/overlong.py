# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The reward function that DAPO's `overlong_buffer` stands for, to be found in the reward server.

Tunix appends a function of its own to the reward functions; here they run in the server, where the
built-in `overlong` gives the same values when it is set up the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

# The name of Tunix's function, and so of its metric.
NAME = "reward_shaping"


def check_overlong(
    buffer: Mapping[str, Any] | None,
    *,
    names: Sequence[str],
    weights: Sequence[float],
    settings: Sequence[Mapping[str, str]],
) -> None:
    """Refuses an `overlong_buffer` that no function of the reward server stands for.

    Args:
        buffer: `overlong_buffer` of Tunix's DAPOConfig.
        names: of the server's reward functions.
        weights: of the functions.
        settings: of the functions where they are not the default, see `RewardFnInfo.settings`.

    Raises:
        ValueError: what is missing, and the lines of the rewards file that add it.
    """
    if not buffer or not buffer.get("enable"):
        return
    params = {
        "unit": "characters",
        "clip": False,
        "max_tokens": int(buffer["max_response_length"]),
        "cache_tokens": int(buffer["overlong_buffer_length"]),
        "penalty": float(buffer["overlong_buffer_penalty"]),
    }
    offered = {name: (weights[i], dict(settings[i])) for i, name in enumerate(names)}
    if NAME not in offered:
        problem = f"no function of the reward server is named {NAME}"
    elif offered[NAME] != (1.0, _settings(params)):
        problem = f"{NAME} of the reward server has other settings"
    else:
        return
    values = ", ".join(f"{key} = {_toml(value)}" for key, value in params.items())
    raise ValueError(
        f"`overlong_buffer` needs its reward function: {problem}. Pass overlong_buffer=None or add"
        f' to the rewards file:\n[[reward]]\nname = "{NAME}"\nfn = "overlong"\n'
        f"skip_special_tokens = false\nparams = {{ {values} }}"
    )


def _settings(params: Mapping[str, Any]) -> dict[str, str]:
    """What a server says of a function with these parameters and special tokens kept.

    The trainer imports nothing of the server.
    """
    shown = {f"params.{key}": _shown(value) for key, value in params.items()}
    return {"skip_special_tokens": "false", **shown}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    if isinstance(value, str):
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
