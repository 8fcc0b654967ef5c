# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward functions by name: importing them, reading their signatures, calling them on one row.

Used in child processes only: importing a reward function runs code that is not ours.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward_server import fn_digest, reward_files, reward_fns
from reward_server.config import ConfigError, Probe, RewardFnConfig, is_file, near
from reward_server.loaded import Loaded
from reward_server.reward_fns import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from reward_server.batch import Chat

# Given by the child itself; every other parameter is a dataset column.
ROW_GIVEN = ("completion_ids", "log_extra", "log_metric")
_CALL_GIVEN = ("mode", "step")
_TEXTS = ("prompts", "completions", "prompt", "completion")
_GIVEN = (*_TEXTS, *_CALL_GIVEN, *ROW_GIVEN, "kwargs")
_MAX_FLOAT32 = 3.4028234663852886e38
# What stands in the matrix of rewards where there is no value.
NOT_APPLICABLE = math.nan


class InvalidValue(Exception):  # noqa: N818 - named as the row status is
    """A function returned something that is no reward; the message says what.

    Attributes:
        is_missing: whether it is None or NaN, by which a function may refuse a row.
    """

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardFn:
    """An imported reward function and how to call it.

    Attributes:
        config: its entry of the rewards file.
        call: the function; a built-in one in its guard.
        bare: the function without the guard, which would take a wrong setting for a completion that
            cannot be graded.
        is_async: whether it is a coroutine function.
        required_columns: columns without a default.
        columns: columns to hand over, or None for all.
        optional_columns: columns with a default, other than arguments that only `params` set.
        given: which of `mode`, `step` and those of `ROW_GIVEN` to hand over.
        needs_row: whether one of `ROW_GIVEN` is among them.
        takes_prompt: whether to hand over the prompt.
        probe: row to score when the child starts.
        has_probe: whether somebody wrote that row, or it was made up.
        file: source file of the function.
        code_digest: hash of its source, or "" if it was not loaded by name.
    """

    config: RewardFnConfig
    call: Callable[..., Any]
    bare: Callable[..., Any]
    is_async: bool
    required_columns: tuple[str, ...]
    columns: tuple[str, ...] | None
    optional_columns: tuple[str, ...]
    given: tuple[str, ...]
    needs_row: bool
    takes_prompt: bool
    probe: Probe
    has_probe: bool
    file: str
    code_digest: str = ""

    @property
    def loaded(self) -> Loaded:
        """What other processes may know of it."""
        return Loaded(
            per=self.config.per,
            columns=self.columns,
            named_columns=(*self.required_columns, *self.optional_columns),
            optional_columns=self.optional_columns,
            probe=self.probe,
            has_probe=self.has_probe,
        )

    def select(self, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Picks the dataset columns that the function takes."""
        if self.columns is None:
            return columns
        return {name: columns[name] for name in self.columns if name in columns}

    def arguments(
        self,
        row: int,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat],
        columns: dict[str, list[Any]],
        given: dict[str, Any],
    ) -> dict[str, Any]:
        """Builds the keyword arguments for one row.

        Args:
            row: index of the row in the lists.
            prompts: texts of the prompts, or chats if it has `messages`.
            completions: texts of the completions, or chats as well.
            columns: dataset columns as picked by `select`.
            given: values of `mode` and `step`, and those of `ROW_GIVEN` for this row.
        """
        if self.config.per == "row":
            arguments: dict[str, Any] = {name: values[row] for name, values in columns.items()}
            arguments["completion"] = self._text("assistant", completions[row])
            if self.takes_prompt:
                arguments["prompt"] = self._text("user", prompts[row])
        else:
            arguments = {name: values[row : row + 1] for name, values in columns.items()}
            arguments["completions"] = [self._text("assistant", completions[row])]
            if self.takes_prompt:
                arguments["prompts"] = [self._text("user", prompts[row])]
        for name in self.given:
            value = given[name]
            as_list = name == "completion_ids" and self.config.per == "list"
            arguments[name] = [value] if as_list else value
        return arguments

    def group_arguments(
        self,
        start: int,
        end: int,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat],
        columns: dict[str, list[Any]],
        given: dict[str, Any],
    ) -> dict[str, Any]:
        """Builds the keyword arguments for rows [start, end), which are a group.

        Args:
            start: first row.
            end: row after the last.
            prompts: texts of the prompts, or chats if it has `messages`.
            completions: texts of the completions, or chats as well.
            columns: dataset columns as picked by `select`.
            given: values of `mode` and `step`, and those of `ROW_GIVEN` for the group.
        """
        arguments: dict[str, Any] = {name: v[start:end] for name, v in columns.items()}
        arguments["completions"] = [self._text("assistant", c) for c in completions[start:end]]
        if self.takes_prompt:
            arguments["prompts"] = [self._text("user", p) for p in prompts[start:end]]
        for name in self.given:
            arguments[name] = given[name]
        return arguments

    def probe_arguments(self) -> tuple[dict[str, Any], int]:
        """Builds the keyword arguments for the probe row, or group; returns its rows, too."""
        whole = self.config.per == "group"
        texts = self.probe.group if whole else [self.probe.completion]
        rows = len(texts)
        given: dict[str, Any] = {"mode": "train", "step": 0}
        given["completion_ids"] = [[] for _ in texts] if whole else []
        given |= {"log_extra": lambda *_: None, "log_metric": lambda *_: None}
        columns = self.select({name: [value] * rows for name, value in self.probe.columns.items()})
        prompts = [self.probe.prompt] * rows
        if whole:
            return self.group_arguments(0, rows, prompts, texts, columns, given), rows
        return self.arguments(0, prompts, texts, columns, given), rows

    def check_probe(self, result: object, rows: int) -> None:
        """Checks what the function returned for its probe row, or group.

        Raises:
            InvalidValue: it is not one finite number for each row.
        """
        if self.config.per != "group":
            self.value(result)
            return
        for value in self.values(result, rows):
            if isinstance(value, BaseException):
                raise value

    def values(self, result: object, rows: int) -> list[float | BaseException]:
        """Checks what the function returned for a group: a number or a problem for each row.

        A number is NaN if the function does not apply to the row.

        Raises:
            InvalidValue: it is no list of so many values.
        """
        _check_list(result)
        try:
            length = len(result)  # type: ignore[arg-type]
            found = [result[i] for i in range(length)]  # type: ignore[index]
        except (TypeError, KeyError, IndexError):
            what = "None" if result is None else type(result).__name__
            raise InvalidValue(f"returned {what}, not a list of {rows} values") from None
        if length != rows:
            raise InvalidValue(f"returned {length} values for {rows} rows")
        return [self._number_or_problem(value) for value in found]

    def _number_or_problem(self, value: object) -> float | BaseException:
        try:
            return self._number(value)
        except InvalidValue as error:
            return error

    def _number(self, value: object) -> float:
        return NOT_APPLICABLE if value is None and self.config.none == "skip" else _number(value)

    def _text(self, role: str, text: str | Chat) -> str | Chat:
        if self.config.messages and isinstance(text, str):
            return [{"role": role, "content": text}]
        return text

    def value(self, result: object) -> float:
        """Checks what the function returned for one row; NaN if it does not apply to it.

        Raises:
            InvalidValue: it is not one finite number.
        """
        if self.config.per != "row" and type(result) is list and len(result) == 1:
            result = result[0]
        elif self.config.per != "row":
            _check_list(result)
            try:
                length = len(result)  # type: ignore[arg-type]
                if length == 1:
                    result = result[0]  # type: ignore[index]
            except (TypeError, KeyError, IndexError):
                what = "None" if result is None else type(result).__name__
                raise InvalidValue(f"returned {what}, not a list of one value") from None
            if length != 1:
                raise InvalidValue(f"returned {length} values for 1 row")
        return self._number(result)


def _check_list(result: object) -> None:
    """Refuses what has a length, but is no list of values."""
    if isinstance(result, str | bytes | dict | set | frozenset):
        raise InvalidValue(f"returned {type(result).__name__}, not a list of values")


def _number(value: object) -> float:
    if type(value) is float and -_MAX_FLOAT32 <= value <= _MAX_FLOAT32:
        return value
    if value is None:
        raise InvalidValue("returned None", is_missing=True)
    if isinstance(value, str | bytes):
        raise InvalidValue(f"returned {type(value).__name__}, not a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(f"returned {type(value).__name__}, not a number") from None
    if not math.isfinite(number):
        raise InvalidValue(f"returned {number}", is_missing=math.isnan(number))
    if abs(number) > _MAX_FLOAT32:
        raise InvalidValue(f"returned {number}, which is beyond float32")
    return number


def load(entry: RewardFnConfig) -> RewardFn:
    """Imports a reward function and reads its signature.

    Args:
        entry: its entry of the rewards file.

    Raises:
        Exception: whatever the import raises.
        LookupError: there is no such built-in, module, file or function.
        TypeError: the function cannot be called as a reward function.
    """
    module, name = _module(entry.fn)
    call = module
    for part in name.split("."):
        call = getattr(call, part, None)  # type: ignore[assignment]
    if not callable(call):
        raise LookupError(
            f"{entry.fn.rpartition(':')[0]} has no function {name!r}; it has"
            f" {', '.join(_functions_of(module)) or 'none'}"
        )
    function = describe(call, entry, entry.probe or _example(module))
    return dataclasses.replace(function, code_digest=fn_digest.of_code(call, module))


def describe(call: Callable[..., Any], entry: RewardFnConfig, probe: Probe | None) -> RewardFn:
    """Reads the signature of a function.

    Args:
        call: the function.
        entry: how to call it; its `fn` is not read.
        probe: row that it can score, or None.

    Raises:
        TypeError: the function cannot be called as a reward function.
    """
    parameters = list(inspect.signature(call).parameters.values())
    if entry.per == "auto":
        one = {"prompt", "completion"} & {p.name for p in parameters}
        entry = dataclasses.replace(entry, per="row" if one else "list")
    if entry.per == "row" and {"prompts", "completions"} & {p.name for p in parameters}:
        raise TypeError('it takes lists of completions; set `per = "list"`')
    if entry.per != "row" and {"prompt", "completion"} & {p.name for p in parameters}:
        raise TypeError('it takes one completion; set `per = "row"`')
    if entry.per == "group" and inspect.iscoroutinefunction(call):
        raise TypeError('`per = "group"` is for functions that are not async')
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"its parameter {parameter.name!r} cannot be given by name")
    if any(p.name == "trainer_state" and p.default is p.empty for p in parameters):
        raise TypeError("it takes `trainer_state`, which is not here: take `step`")
    taken = _with_params(call, entry)
    parameters = [p for p in parameters if p.name not in entry.params]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    columns = [p for p in named if p.name not in _GIVEN]
    required = tuple(p.name for p in columns if p.default is p.empty)
    names = {p.name for p in named}
    given = tuple(name for name in (*_CALL_GIVEN, *ROW_GIVEN) if name in names)
    if takes_all and "mode" not in given:
        given = ("mode", *given)
    unwrapped = inspect.unwrap(call)
    return RewardFn(
        config=entry,
        call=_guarded(taken, unwrapped, entry),
        bare=taken,
        is_async=inspect.iscoroutinefunction(call)
        or inspect.iscoroutinefunction(getattr(call, "__call__", None)),  # noqa: B004
        required_columns=required,
        columns=None if takes_all else tuple(p.name for p in columns),
        optional_columns=tuple(
            p.name
            for p in columns
            if p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ),
        given=given,
        needs_row=not set(given).isdisjoint(ROW_GIVEN),
        takes_prompt=takes_all or bool({"prompt", "prompts"} & names),
        probe=probe or Probe(columns=dict.fromkeys(required, "")),
        has_probe=probe is not None,
        file=getattr(getattr(unwrapped, "__code__", None), "co_filename", ""),
    )


def _guarded(
    call: Callable[..., Any], function: Callable[..., Any], entry: RewardFnConfig
) -> Callable[..., Any]:
    # A function that `exec` made, or a callable object, may have no module, or None.
    package, _, module = (getattr(function, "__module__", None) or "").rpartition(".")
    if package != reward_fns.__name__ or module in reward_fns.JUDGES:
        return call
    return guard.Guarded(call, name=entry.name, row_s=entry.timeout_s)


def columns_and_params(
    call: Callable[..., Any],
) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Splits what a function takes by name into columns and parameters, as its author meant them.

    Keyword-only arguments are meant for `params`; a rewards file may set the others there, too.
    """
    found = inspect.signature(call).parameters.values()
    named = [p for p in found if p.name not in _GIVEN]
    return (
        [p for p in named if p.kind is p.POSITIONAL_OR_KEYWORD],
        [p for p in named if p.kind is p.KEYWORD_ONLY],
    )


def _with_params(call: Callable[..., Any], entry: RewardFnConfig) -> Callable[..., Any]:
    """Binds the parameters from the rewards file."""
    if not entry.params:
        return call
    known = [p.name for group in columns_and_params(call) for p in group]
    for name in entry.params:
        if not known:
            raise TypeError(f"it takes no `params`, got {name!r}")
        if name not in known:
            raise TypeError(f"`{name}` is none of its `params`{near(name, known)}")
    _check_types(call, entry.params)
    return functools.partial(call, **entry.params)


def _check_types(call: Callable[..., Any], params: dict[str, Any]) -> None:
    """Checks values against annotations, where these are plain types."""
    try:
        annotations = typing.get_type_hints(call)
    except Exception:  # noqa: BLE001 - names that are only there for type checkers
        return
    for name, value in params.items():
        wanted = annotations.get(name)
        kinds = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
        if not set(kinds) <= {int, float, str, bool, list, dict, types.NoneType}:
            continue
        fits = type(value) in kinds or (float in kinds and type(value) is int)
        if not fits:
            text = getattr(wanted, "__name__", str(wanted))
            raise TypeError(f"its parameter `{name}` must be {text}, got {value!r}")


def _example(module: ModuleType) -> Probe | None:
    example = getattr(module, "EXAMPLE", None)
    if not isinstance(example, dict):
        return None
    known = [field.name for field in dataclasses.fields(Probe)]
    for key in example:
        if key not in known:
            raise ValueError(
                f"EXAMPLE must have the keys {', '.join(known)}, got {key!r}. Put columns into its"
                f' "columns": EXAMPLE = {{..., "columns": {{{key!r}: ...}}}}'
            )
    try:
        return Probe(**example)
    except ConfigError as error:
        raise ValueError(f"EXAMPLE can't be used: {str(error).replace('probe.', '')}") from error


def _module(fn: str) -> tuple[ModuleType, str]:
    if ":" not in fn:
        if fn not in reward_fns.BUILT_IN:
            raise LookupError(_no_function(fn))
        fn = reward_fns.BUILT_IN[fn]
    place, _, name = fn.rpartition(":")
    return (reward_files.load(Path(place)) if is_file(fn) else _named_module(place)), name


def _no_function(fn: str) -> str:
    """Says what to write in place of a name without a function in it."""
    if fn.endswith(".py"):
        path = Path(fn)
        found = _functions_of(reward_files.load(path)) if path.is_file() else []
        has = f"; it has {', '.join(found) or 'none'}" if path.is_file() else ""
        return f"it must name a function: {path.name}:FUNCTION{has}"
    if "." in fn:
        place, _, name = fn.rpartition(".")
        return (
            f"it must name a function of a module, {place}:{name}, or of a file,"
            f" {place.rpartition('.')[2]}.py:{name}"
        )
    return (
        f"it is no built-in function{near(fn, [*reward_fns.BUILT_IN])}. A function of yours is"
        f" file.py:{fn}"
    )


def _functions_of(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _named_module(name: str) -> ModuleType:
    return importlib.import_module(name)
