# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a child process was when it was killed: the line of the user's file.

The child lets `faulthandler` write its stack, which works in a loop of C, too, when it crashes or
gets `SIGNAL` from its parent.
"""

from __future__ import annotations

import os
import re
import signal
import sysconfig
from pathlib import Path

# Reward functions have no use for it.
SIGNAL = signal.SIGRTMAX - 3
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_STACK = "Stack (most recent call first)"
# Folders of what calls a user's code, compared with paths as text.
_OURS = tuple(str(Path(__file__).parent / name) for name in ("", "reward_files"))
_LIBRARY = sysconfig.get_path("stdlib")


def line_of(trace: str) -> str:
    """Finds the line of the user's file in a stack that `faulthandler` wrote.

    Args:
        trace: the stack, innermost frame first; "" if there is none.

    Returns:
        Text like " (line 3 of my_rewards.py)", or "".
    """
    frames = _FRAME.findall(trace.rpartition(_STACK)[2])
    theirs = next((file for file, _ in reversed(frames) if _is_users(file)), None)
    for file, line in frames:
        if file == theirs:
            return f" (line {line} of {Path(file).name})"
    return ""


def _is_users(file: str) -> bool:
    if file.startswith("<") or os.path.dirname(file) in _OURS:  # noqa: PTH120
        return False
    return not file.startswith(_LIBRARY) or "site-packages" in file
