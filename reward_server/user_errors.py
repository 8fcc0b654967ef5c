# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What an exception of a reward function means for its row: a status and a sentence."""

from __future__ import annotations

import traceback
from pathlib import Path

from reward_server import hints, registry
from reward_server.batch import RowStatus

MAX_MESSAGE = 1000
# Left for the place, which must survive a long text.
_PLACE = 100


def status_of(error: BaseException) -> RowStatus:
    """Chooses the status of the row."""
    if isinstance(error, registry.InvalidValue):
        return RowStatus.INVALID
    return RowStatus.OOM if isinstance(error, MemoryError) else RowStatus.ERROR


def explain(error: BaseException, function: registry.RewardFn) -> str:
    """Names what went wrong in a function, as `describe` does, and what to do if that is clear."""
    what = describe(error, function.file)
    if isinstance(error, registry.InvalidValue):
        hint = "" if error.is_missing else hints.of_result(function)
    else:
        hint = hints.of_exception(error, function)
    return f"{what}. {hint}" if hint else what


def explain_probe(error: BaseException, function: registry.RewardFn) -> str | None:
    """Says what went wrong on the probe row, or None if a function may do that there."""
    invalid = isinstance(error, registry.InvalidValue)
    missing = isinstance(error, registry.InvalidValue) and error.is_missing
    # A function may refuse a row that nobody wrote for it.
    if missing and not function.has_probe:
        return None
    what = explain(error, function).removesuffix(".")
    # No other row would help a function that returns no list.
    hint = hints.of_probe(error, function) if not invalid or missing else ""
    return f"reward function {function.config.name!r} failed its probe row: {what}. {hint}".strip()


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
