# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in JSON-lines files: reading and checking lines, and writing a file in one piece."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from reward_server.config import ConfigError
from reward_server.messages import load_json

_RESULT_KEYS = ("rewards", "reward", "status", "error")
# What functions have logged; not in every result.
_EXTRA_KEY = "extra_columns"
_ROW_KEYS = ("prompt", "completion", "completion_ids", "step", "mode", "group_id")
_MODES = ("train", "eval")
_INT32 = np.iinfo(np.int32)
_SHOWN_CHARACTERS = 60
_TEXT_OR_CHAT = 'text or a chat, a list of {"role": "...", "content": ...}'


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """One line of a file.

    Attributes:
        line: number of the line, from 1.
        text: the line as it was read.
        values: the line's object, with the results once it is scored.
        seconds: how long its functions took, or None if they have not run.
        unweighted_errors: what functions with weight 0 failed with, which is in no file.
    """

    line: int
    text: str
    values: dict[str, Any]
    seconds: float | None = None
    unweighted_errors: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of_text(cls, line: int, completion: str, values: dict[str, Any]) -> Row:
        """Makes a row that stands in no file; its token ids are the bytes of the completion."""
        ids = list(completion.encode("utf-8", "surrogatepass"))
        return cls(
            line=line,
            text="",
            values={**values, "completion": completion, "completion_ids": ids},
        )

    @property
    def columns(self) -> dict[str, Any]:
        """Dataset columns: all keys that have no meaning of their own."""
        known = (*_RESULT_KEYS, *_ROW_KEYS, _EXTRA_KEY)
        return {name: value for name, value in self.values.items() if name not in known}

    @property
    def group(self) -> tuple[int, str, str | int]:
        """What the rows of a group have in common: `group_id`, or else the prompt."""
        values = self.values
        own = values.get("group_id", values["prompt"])
        if isinstance(own, list):
            own = json.dumps(own)
        return values.get("step", 0), values.get("mode", "train"), own

    @property
    def chats(self) -> list[str]:
        """Which of its prompt and its completion are chats."""
        return [name for name in ("prompt", "completion") if type(self.values.get(name)) is list]

    @property
    def reward(self) -> float | None:
        """The total, or None if the row failed or was not scored."""
        value = self.values.get("reward")
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def extra_columns(self) -> dict[str, float]:
        """Numbers that functions have logged for the row."""
        values = self.values.get(_EXTRA_KEY)
        return values if isinstance(values, dict) else {}

    def finish(
        self,
        *,
        rewards: dict[str, float | None],
        reward: float | None,
        status: str,
        error: str,
        extra_columns: dict[str, float] | None = None,
    ) -> None:
        """Puts results into the row, in place of older ones."""
        results = (rewards, reward, status, error or None)
        self.values |= dict(zip(_RESULT_KEYS, results, strict=True))
        self.values.pop(_EXTRA_KEY, None)
        if extra_columns:
            self.values[_EXTRA_KEY] = extra_columns
        self.text = json.dumps(self.values)


def read(file: Path) -> list[Row]:
    """Reads the rows of a file; blank lines are left out.

    Raises:
        ConfigError: the file can't be read, or a line is wrong; the message names it.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(
            f"{file} must be a readable file, got {error.strerror or error}."
        ) from error
    return [_row(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _row(file: Path, number: int, line: bytes) -> Row:
    try:
        text = line.decode().strip()
        values = load_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}, line {number}: must be a JSON object: {error}.") from error
    try:
        _check(values)
    except ValueError as error:
        raise ConfigError(f"{file}, line {number}: {error}") from error
    return Row(line=number, text=text, values=values)


def _check(values: object) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"must be a JSON object, got {_shown(values)}.")
    _check_text("prompt", values.get("prompt"))
    if ("completion" in values) == ("completion_ids" in values):
        raise ValueError("must have either `completion` or `completion_ids`.")
    _check_text("completion", values.get("completion", ""))
    ids = values.get("completion_ids", [])
    if not isinstance(ids, list) or not all(map(_is_id, ids)):
        raise ValueError(f"`completion_ids` must be a list of int32, got {_shown(ids)}.")
    step = values.get("step", 0)
    if type(step) is not int or step < 0:
        raise ValueError(f"`step` must be a whole number >= 0, got {_shown(step)}.")
    if values.get("mode", "train") not in _MODES:
        raise ValueError(f'`mode` must be "train" or "eval", got {_shown(values["mode"])}.')
    _check_result_keys(values)
    if type(values.get("group_id", 0)) not in (int, str):
        group = _shown(values["group_id"])
        raise ValueError(f"`group_id` must be a whole number or text, got {group}.")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) and not _is_chat(value):
        raise ValueError(f"`{name}` must be {_TEXT_OR_CHAT}, got {_shown(value)}.")


def _is_chat(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and "content" in message
            for message in value
        )
    )


def _check_result_keys(values: dict[str, Any]) -> None:
    """Checks that a row has all results, or none."""
    results = [name for name in (*_RESULT_KEYS, _EXTRA_KEY) if name in values]
    if results and not all(name in values for name in _RESULT_KEYS):
        raise ValueError(f"`{results[0]}` must have another name: the result goes there.")


def _is_id(value: object) -> bool:
    return type(value) is int and _INT32.min <= value <= _INT32.max


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class CannotWrite(ConfigError):  # noqa: N818 - named for what failed
    """A file can't be written, on a full disk for example; the message names it."""


class Draft:
    """A file beside another one, whose place it takes once it is complete."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self._target = target
        self._out = path.open("w", encoding="utf-8")

    def replace(self, lines: Iterable[str]) -> None:
        """Writes all lines and replaces the file.

        Raises:
            CannotWrite: the file is as it was.
        """
        try:
            self._out.writelines(f"{line}\n" for line in lines)
            self._out.flush()
            os.fsync(self._out.fileno())
            if self._target.exists():
                self._path.chmod(self._target.stat().st_mode)
            self._path.replace(self._target)
        except OSError as error:
            reason = error.strerror or error
            raise CannotWrite(f"{self._target} can't be written: {reason}.") from error

    def close(self) -> None:
        """Removes what is left of it."""
        with contextlib.suppress(OSError):  # a full disk
            self._out.close()
        self._path.unlink(missing_ok=True)


def draft(file: Path) -> Draft:
    """Opens a draft of a file, so that what can't be written is known before the work.

    Raises:
        ConfigError: there can be no file.
    """
    target = file.resolve()
    if target.exists() and not target.is_file():  # a device would be replaced, too
        raise ConfigError(f"`--out` must be a file to write, got {file}.")
    try:
        return Draft(target.with_name(f".{target.name}.{os.getpid()}"), target)
    except OSError as error:
        raise ConfigError(f"`--out` must be a file to write, got {file}: {error}.") from error
