# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What to do about the mistakes that reward functions are written with, in one sentence each.

A hint is given where the exception leaves little doubt; no hint is better than a wrong one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reward_server.registry import RewardFn

_TEXT_AS_CHAT = (
    "string index out of range",
    "string indices must be integers",
    "'str' object has no attribute 'get'",
)
_CHAT_AS_TEXT = (
    "'list' object has no attribute",
    "expected string or bytes-like object, got 'list'",
)
_TEXT_METHODS = ("strip", "split", "lower", "upper", "startswith", "endswith", "replace", "find")


def of_exception(error: BaseException, function: RewardFn) -> str:
    """Says what to do about an exception of a function, or "" if that is anybody's guess."""
    text = _text_of(error)
    per, chats = function.config.per, function.config.messages
    if "trainer_state" in text or "'global_step'" in text:
        return "There is no `trainer_state` here: take `step`."
    if isinstance(error, IndexError | TypeError | AttributeError):
        if not chats and any(part in text for part in _TEXT_AS_CHAT):
            return "If it takes chats, as functions of TRL do, set `messages = true`."
        if chats and any(part in text for part in _CHAT_AS_TEXT):
            return "`messages = true` gives it chats; leave that out if it takes texts."
        if per != "row" and any(text.endswith(f"no attribute {m!r}") for m in _TEXT_METHODS):
            return (
                "`completions` and columns are lists: loop over them, or take one `completion` with"
                ' `per = "row"`.'
            )
    return ""


def of_result(function: RewardFn) -> str:
    """Says what a function must return."""
    if function.config.per == "row":
        return "It must return one number."
    return "It must return a list with one number for each completion."


def of_probe(error: BaseException, function: RewardFn) -> str:
    """Says how to give a function a row that it can score when it starts."""
    if not function.has_probe:
        columns = dict.fromkeys(function.required_columns, "...")
        if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
            columns[error.args[0]] = "..."
        toml = ", ".join(f"{name} = {json.dumps(value)}" for name, value in columns.items())
        table = f", columns = {{{toml}}}" if columns else ""
        example = {"completion": "..."} | ({"columns": columns} if columns else {})
        return (
            'Set `probe` to a row that it can score: `probe = {completion = "..."'
            f"{table}}}` in its [[reward]], or `EXAMPLE = {json.dumps(example)}` in its file."
        )
    lists = [name for name, value in function.probe.columns.items() if isinstance(value, list)]
    if lists and function.config.per != "row" and isinstance(error, TypeError | ValueError):
        return f"Columns of a probe or EXAMPLE are the value of one row: is `{lists[0]}` a list?"
    return ""


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - `__str__` of a user's exception may raise anything
        return ""
