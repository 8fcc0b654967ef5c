# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the pool and of its reward functions, and the rewards file.

Here names and limits only; functions are imported by `reward_server.registry`, in child processes.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_server.printable import sendable

DEFAULT_TIMEOUT_S = 10.0
_ARGUMENTS = (
    "Arguments of the function go into its `params`: a table [reward.params] with `{key} = ...`"
)
MAX_NAME_CHARACTERS = 100
_PROBE_ROWS = 4


class ConfigError(ValueError):
    """A setting is wrong; the message names the field, the rule and the value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One made-up row that a function must score when a child starts.

    Attributes:
        prompt: text of the prompt.
        completion: text of the completion; the first of `completions` if there are some.
        completions: texts of a group, for functions that see groups.
        columns: one plain value for each dataset column, of all rows of a group.
    """

    prompt: str = ""
    completion: str = ""
    completions: Sequence[str] = ()
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the types.

        Raises:
            ConfigError: names the field, the rule and the value.
        """
        for name in ("prompt", "completion"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"`probe.{name}` must be text, got {getattr(self, name)!r}.")
        texts = self.completions
        if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
            raise ConfigError(f"`probe.completions` must be a list of texts, got {texts!r}.")
        if texts and not self.completion:
            object.__setattr__(self, "completion", texts[0])
        if not isinstance(self.columns, dict):
            raise ConfigError(f"`probe.columns` must be a table, got {self.columns!r}.")

    @property
    def group(self) -> list[str]:
        """Completions of a group: those given, or some around the one, since groups have several.

        What is added is blank, so that a function that can read the one can read the others.
        """
        return list(self.completions) or [self.completion + "\n" * n for n in range(_PROBE_ROWS)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardFnConfig:
    """One reward function: an entry of the rewards file.

    Attributes:
        name: name in answers and metrics; empty takes the function's name.
        fn: a built-in name, "package.module:function" or "path/to/file.py:function".
        weight: factor in the weighted total; 0 is reported only.
        timeout_s: seconds for one row.
        per: "list" calls with lists of prompts and completions of one row, "row" with one of each,
            "group" with the lists of a whole group; "auto" is "list" or "row" by the signature.
        skip_special_tokens: whether special tokens are left out of the decoded text.
        messages: whether texts are handed over as chats of one message, as TRL does:
            `[{"role": "assistant", "content": completion}]`.
        probe: row to score when a child starts, or None for the module's `EXAMPLE`.
        params: arguments of the function that are the same for every row, by name.
        sources: values of the routing column whose rows it scores; empty scores all rows.
        none: what `None` means: "fail", the row has no reward; "skip", as in TRL, the function does
            not apply to the row, whose total is the sum of the others.
    """

    name: str = ""
    fn: str
    weight: float = 1.0
    timeout_s: float = DEFAULT_TIMEOUT_S
    per: str = "list"
    skip_special_tokens: bool = True
    messages: bool = False
    probe: Probe | None = None
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    sources: tuple[str, ...] = ()
    none: str = "fail"

    def __post_init__(self) -> None:
        """Checks the values and fills in the name.

        Raises:
            ConfigError: names the field, the rule and the value.
        """
        if not isinstance(self.fn, str) or not self.fn.rpartition(":")[2]:
            raise ConfigError(
                "`fn` must be a built-in name, module:function or file.py:function,"
                f" got {self.fn!r}."
            )
        if not (
            isinstance(self.name, str)
            and len(self.name) <= MAX_NAME_CHARACTERS
            and sendable(self.name) == self.name
        ):
            raise ConfigError(
                f"`name` must be text of at most {MAX_NAME_CHARACTERS} printable characters,"
                f" got {self.name!r}."
            )
        if not self.name:
            object.__setattr__(self, "name", self.fn.rpartition(":")[2])
        if not _is_number(self.weight):
            raise ConfigError(f"`weight` must be a finite number, got {self.weight!r}.")
        if not _is_number(self.timeout_s) or self.timeout_s <= 0:
            raise ConfigError(f"`timeout_s` must be > 0 seconds, got {self.timeout_s!r}.")
        if self.per not in ("list", "row", "group", "auto"):
            raise ConfigError(f'`per` must be "list", "row" or "group", got {self.per!r}.')
        if self.none not in ("fail", "skip"):
            raise ConfigError(f'`none` must be "fail" or "skip", got {self.none!r}.')
        _check_params(self.params)
        _check_sources(self.sources)
        for name in ("skip_special_tokens", "messages"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"`{name}` must be true or false, got {getattr(self, name)!r}.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardsConfig:
    """Reward functions in the order of the reward matrix.

    Attributes:
        functions: at least one, with names of their own.
        route_column: dataset column that chooses the functions of a row by their `sources`, or "".
    """

    functions: tuple[RewardFnConfig, ...]
    route_column: str = ""

    def __post_init__(self) -> None:
        """Checks that there are functions and that their names differ.

        Raises:
            ConfigError: names the field, the rule and the value.
        """
        if not self.functions:
            raise ConfigError("`reward` must be one table or more ([[reward]]), got none.")
        names = [function.name for function in self.functions]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"`name` must be unique among rewards, got {name!r} twice.")
        routed = [function.name for function in self.functions if function.sources]
        if routed and not self.route_column:
            raise ConfigError(
                f"`route` must name the column of `sources`, which {routed[0]!r} has:"
                ' [route] column = "data_source", for example.'
            )
        if self.route_column and not routed:
            raise ConfigError(
                f"`sources` must be set in a [[reward]] for [route], got column"
                f" {self.route_column!r} alone."
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RewardsConfig:
        """Reads a rewards file.

        Args:
            path: TOML file of `[[reward]]` tables; paths of functions are relative to its folder.

        Raises:
            ConfigError: the file cannot be read or a setting is wrong.
        """
        file = Path(path)
        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{file} must be a readable file, got {error.strerror or error}."
            ) from error
        except ValueError as error:
            raise ConfigError(f"{file} must be TOML in UTF-8, got {error}.") from error
        try:
            _check_keys(data, ("reward", "route"), "the rewards file")
            tables = data.get("reward", [])
            if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
                raise ConfigError("`reward` must be a list of tables ([[reward]]).")  # noqa: TRY301
            functions = tuple(_reward_fn(table, file.parent) for table in tables)
            return cls(functions=functions, route_column=_route_column(data.get("route")))
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Limits of a pool of child processes.

    Attributes:
        slots: rows scored at the same time, by default one for each core; one more child is warm.
        rows_per_child: rows after which a child is replaced.
        max_child_rss_bytes: resident memory above which a child is killed.
        start_timeout_s: seconds for a child to import the functions and score the probe rows.
        max_async_rows: rows of `async` functions that a child runs at the same time.
        outage_s: seconds that rows wait when no child can be started, before their calls end
            unavailable. 0 where others can score the rows.
    """

    slots: int = dataclasses.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    rows_per_child: int = 100_000
    max_child_rss_bytes: int = 4 * 2**30
    start_timeout_s: float = 120.0
    max_async_rows: int = 256
    outage_s: float = 30.0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ConfigError: names the field, the rule and the value.
        """
        for name in ("slots", "rows_per_child", "max_child_rss_bytes", "max_async_rows"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"`{name}` must be a whole number >= 1, got {value!r}.")
        if not _is_number(self.start_timeout_s) or self.start_timeout_s <= 0:
            raise ConfigError(
                f"`start_timeout_s` must be > 0 seconds, got {self.start_timeout_s!r}."
            )


def _check_params(params: object) -> None:
    if not isinstance(params, dict):
        raise ConfigError(f"`params` must be a table, got {params!r}.")
    try:
        json.dumps(params)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"`params` must hold plain values: {error}.") from error


def _check_sources(sources: object) -> None:
    if not isinstance(sources, tuple) or not all(isinstance(s, str) for s in sources):
        raise ConfigError(f"`sources` must be a list of texts, got {sources!r}.")


def _route_column(route: object) -> str:
    if route is None:
        return ""
    if not isinstance(route, dict):
        raise ConfigError(f"`route` must be a table, got {route!r}.")
    _check_keys(route, ("column",), "[route]")
    column = route.get("column")
    if not isinstance(column, str) or not column:
        raise ConfigError(f"`column` of [route] must name a dataset column, got {column!r}.")
    return column


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_keys(
    table: dict[str, Any], known: tuple[str, ...], where: str, *, otherwise: str = ""
) -> None:
    for key in table:
        if key not in known:
            hint = near(key, known, otherwise=otherwise and f". {otherwise.format(key=key)}")
            raise ConfigError(f"`{key}` is no key of {where}{hint}.")


def near(name: str, known: Sequence[str], *, otherwise: str = "") -> str:
    """Offers the name that is much like another one; if there is none, all or something else.

    Example:
        >>> near("weigth", ["weight", "fn"]), near("limit", ["weight", "fn"])
        ('; the nearest is `weight`', '; there are weight, fn')
    """
    found = difflib.get_close_matches(name, known, n=1)
    if found:
        return f"; the nearest is `{found[0]}`"
    return otherwise or f"; there are {', '.join(known)}"


def _names(config: type[RewardFnConfig | Probe]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(config))


def _reward_fn(table: dict[str, Any], folder: Path) -> RewardFnConfig:
    _check_keys(table, _names(RewardFnConfig), "[[reward]]", otherwise=_ARGUMENTS)
    values = dict(table)
    if "fn" not in values:
        raise ConfigError(f"`fn` must be set in every [[reward]], got {table!r}.")
    if values.get("name") == "":
        raise ConfigError('`name` must not be empty, got "".')
    if "probe" in values:
        if not isinstance(values["probe"], dict):
            raise ConfigError(f"`probe` must be a table, got {values['probe']!r}.")
        _check_keys(values["probe"], _names(Probe), "`probe`")
        values["probe"] = Probe(**values["probe"])
    if isinstance(values.get("sources"), list):
        values["sources"] = tuple(values["sources"])
    fn = values["fn"]
    if isinstance(fn, str) and is_file(fn):
        file, _, function = fn.rpartition(":")
        values["fn"] = f"{(folder / file).resolve()}:{function}"
    elif isinstance(fn, str) and fn.endswith(".py"):  # a function is missing, which its import says
        values["fn"] = str((folder / fn).resolve())
    return RewardFnConfig(**values)


def is_file(fn: str) -> bool:
    """Says whether `fn` names a function in a file by its path."""
    return fn.rpartition(":")[0].endswith(".py")
