# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server rewards`: what the built-in functions are, and what they give for examples."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

from reward_server import registry
from reward_server.batch import RowStatus, StartError
from reward_server.config import ConfigError, PoolConfig, RewardFnConfig, RewardsConfig, near
from reward_server.printable import printable
from reward_server.reward_fns import BUILT_IN
from reward_server.rows_file import Row
from reward_server.score_rows import score_rows

_SHOWN, _SHOWN_MESSAGE = 60, 150


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _BuiltIn:
    """A built-in function and its signature; texts of values are as in Python."""

    name: str
    module: ModuleType
    doc: str
    columns: tuple[str, ...]
    params: tuple[str, ...]
    per: str

    @classmethod
    def load(cls, name: str) -> _BuiltIn:
        place, _, function = BUILT_IN[name].partition(":")
        module = importlib.import_module(place)
        call: Callable[..., Any] = getattr(module, function)
        columns, params = registry.columns_and_params(call)
        return cls(
            name=name,
            module=module,
            doc=inspect.getdoc(call) or "",
            columns=tuple(_parameter(p) for p in columns),
            params=tuple(_parameter(p) for p in params),
            per="row" if "completion" in inspect.signature(call).parameters else "list",
        )

    def examples(self) -> list[dict[str, Any]]:
        """Rows to show: those of the module, or its one and two that are easily made of it."""
        if listed := getattr(self.module, "EXAMPLES", None):
            return list(listed)
        example = self.module.EXAMPLE
        return [example, *({**example, "completion": text} for text in ("", "I don't know."))]


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


def list_built_in() -> str:
    """Lists the built-in functions, one line each, with their parameters below."""
    lines = []
    width = max(map(len, BUILT_IN))
    for name in BUILT_IN:
        try:
            found = _BuiltIn.load(name)
        except ImportError as error:
            lines.append(f"{name:{width}}  can't be used here: {error}")
            continue
        lines.append(f"{name:{width}}  {found.doc.partition(chr(10))[0]}")
        if found.params:
            lines.append(f"{'':{width}}  params: {', '.join(found.params)}")
    return "\n".join(lines)


def show_built_in(name: str) -> str:
    """Shows the contract of a built-in function, and what it gives for examples.

    Raises:
        ConfigError: there is none of that name, or a package that it needs is missing.
    """
    if name not in BUILT_IN:
        raise ConfigError(f"{name!r} is no built-in reward function{near(name, [*BUILT_IN])}.")
    try:
        found = _BuiltIn.load(name)
    except ImportError as error:
        raise ConfigError(f"{name!r} can't be used here: {error}.") from error
    lines = [
        f"{name}: {found.doc}",
        "",
        f"columns: {', '.join(found.columns) or 'none'}",
        f"params: {', '.join(found.params) or 'none'}",
        "examples:",
        textwrap.indent(_worked(found), "  "),
    ]
    return "\n".join(lines)


def _worked(found: _BuiltIn) -> str:
    rows = [
        Row.of_text(
            number,
            example.get("completion", ""),
            {"prompt": example.get("prompt", ""), **example.get("columns", {})},
        )
        for number, example in enumerate(found.examples(), 1)
    ]
    rewards = RewardsConfig(functions=(RewardFnConfig(fn=found.name, per=found.per),))
    try:
        asyncio.run(score_rows(rows, rewards=rewards, pool=PoolConfig(slots=1)))
    except (ConfigError, StartError) as error:
        return f"can't be run: {error}"
    return "\n".join(map(_line, rows))


def _line(row: Row) -> str:
    columns = "".join(
        f", {name} {printable(repr(value), _SHOWN)}" for name, value in row.columns.items()
    )
    completion = printable(repr(row.values["completion"]), _SHOWN)
    return f"{outcome(row)} for completion {completion}{columns}"


def outcome(row: Row) -> str:
    """Says in a few words what the one function of a row gave."""
    if row.reward is not None:
        return str(row.reward)
    if gave_none(row):
        return "None"
    message = printable(_message(row), _SHOWN_MESSAGE)
    return message if row.values["status"] == RowStatus.TIMEOUT.name else f"error: {message}"


def gave_none(row: Row) -> bool:
    """Whether the function refused the row, which is its right."""
    invalid = row.values["status"] == RowStatus.INVALID.name
    return invalid and _message(row) in ("returned None", "returned nan")


def _message(row: Row) -> str:
    return str(row.values["error"]).partition(": ")[2]
