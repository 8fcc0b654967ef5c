# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What an exception of a reward function means for its row: a status and a sentence."""

from __future__ import annotations

import traceback
from pathlib import Path

from reward_server import registry
from reward_server.batch import RowStatus

MAX_MESSAGE = 1000
# Left for the place, which must survive a long text.
_PLACE = 100


def status_of(error: BaseException) -> RowStatus:
    """Chooses the status of the row."""
    if isinstance(error, registry.InvalidValue):
        return RowStatus.INVALID
    return RowStatus.OOM if isinstance(error, MemoryError) else RowStatus.ERROR


def describe(error: BaseException, file: str = "") -> str:
    """Names an exception and the last line of the function's file that it went through."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # the report needs memory, too
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - __str__ of a user's exception may raise anything
        text = ""
    if isinstance(error, registry.InvalidValue):
        return text
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == file:
        line = error.lineno
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text[: MAX_MESSAGE - _PLACE] + (f" (line {line} of {Path(file).name})" if line else "")
