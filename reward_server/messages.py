# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages to plain batches and scores to messages. Pure: no gRPC, no processes.

Legend: b rows of a call, F reward functions.
"""

from __future__ import annotations

import collections
import contextlib
import json
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from shardward import answers
from shardward.v1 import types_pb2

from reward_server import decode
from reward_server.batch import (
    MAX_GROUP_ROWS,
    Batch,
    RowError,
    RowStatus,
    Scores,
    group_starts,
)
from reward_server.printable import sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward_server.batch import RewardFnInfo
    from reward_server.decode import Tokenizer

MAX_REQUEST_ID_CHARACTERS = 200
MAX_CALLER_CHARACTERS = 200
MAX_END_TOKEN_IDS = 256
MAX_JSON_DEPTH = 64
MAX_MESSAGE_CHARACTERS = 1000
# All messages of failed rows of one answer, so that it stays below the limit of a message.
MAX_ERROR_CHARACTERS = 8 * 2**20
# Rows take memory beyond their bytes.
_ROW_BYTES = 512
_STATUSES = frozenset(RowStatus)
_CODES = {
    RowStatus.ERROR: 13,
    RowStatus.INVALID: 3,
    RowStatus.TIMEOUT: 4,
    RowStatus.CRASHED: 13,
    RowStatus.OOM: 8,
}
_FIELDS = {
    str: "string_values",
    int: "int64_values",
    float: "double_values",
    bool: "bool_values",
}


class RequestError(ValueError):
    """A request can't be scored as it stands.

    Attributes:
        field: the field of the request.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def check_request_id(request_id: str) -> None:
    """Checks the id of a call.

    Raises:
        RequestError: it is empty or too long.
    """
    if not 0 < len(request_id) <= MAX_REQUEST_ID_CHARACTERS:
        raise RequestError(
            "request_id",
            f"`request_id` must have 1 to {MAX_REQUEST_ID_CHARACTERS} characters,"
            f" got {len(request_id)}.",
        )


def check_caller(caller: str) -> None:
    """Checks the name of a caller, which is kept while its calls wait.

    Raises:
        RequestError: it is too long.
    """
    if len(caller) > MAX_CALLER_CHARACTERS:
        raise RequestError(
            "caller",
            f"`caller` must have at most {MAX_CALLER_CHARACTERS} characters, got {len(caller)}.",
        )


def _ids(
    name: str, data: bytes, lengths: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    sizes = np.asarray(lengths, np.int64)
    if sizes.size and sizes.min() < 0:
        row = int(np.flatnonzero(sizes < 0)[0])
        raise RequestError(
            f"{name}_lengths", f"`{name}_lengths` must be >= 0, got {sizes[row]} in row {row}."
        )
    if len(data) != 4 * int(sizes.sum()):
        raise RequestError(
            f"{name}_ids",
            f"`{name}_ids` must have 4 * sum({name}_lengths) = {4 * int(sizes.sum())} bytes,"
            f" got {len(data)}.",
        )
    return np.frombuffer(data, "<i4").astype(np.int32, copy=False), sizes


def _cut(
    name: str,
    ids: NDArray[np.int32],
    lengths: NDArray[np.int64],
    *,
    ends: Sequence[int],
    pad: int | None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Cuts rows, and checks what is left of them before padding moves positions."""
    ids, lengths = decode.cut(ids, lengths, ends, None)
    beyond = ids.size and not 0 <= ids.min() <= ids.max() < decode.TOKEN_ID_LIMIT
    try:
        if beyond:
            # Trainers pad with negative ids, too.
            checked = ids if pad is None else np.where(ids == pad, np.int32(0), ids)
            decode.check_ids(checked, lengths, name=f"{name}_ids")
    except ValueError as error:
        raise RequestError(f"{name}_ids", str(error)) from error
    return decode.cut(ids, lengths, [], pad)


def _per_row(field: str, count: int, rows: int) -> None:
    if count != rows:
        raise RequestError(field, f"`{field}` must have one value per row ({rows}), got {count}.")


def _columns(columns: Sequence[types_pb2.Column], rows: int) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for column in columns:
        if not column.name or column.name in values:
            raise RequestError("columns", f"`columns` must have unique names, got {column.name!r}.")
        values[column.name] = _column(column, rows)
    return values


def _column(column: types_pb2.Column, rows: int) -> list[Any]:
    kind = column.WhichOneof("values")
    if kind is None:
        raise RequestError("columns", f"column {column.name!r} must have values.")
    values = list(getattr(column, kind).values)
    _per_row(f"columns[{column.name!r}]", len(values), rows)
    if kind != "json_values":
        return values
    try:
        return [load_json(text) for text in values]
    except (ValueError, RecursionError) as error:
        raise RequestError(
            "columns", f"column {column.name!r} must hold JSON documents: {error}."
        ) from error


def load_json(text: str) -> Any:
    """Reads a JSON document that can be written again.

    Raises:
        ValueError: it is none, or is nested too deep.
        RecursionError: it is nested much too deep.
    """
    value = json.loads(text)
    # Writing it again would fail at the limit of recursion, where nobody expects it.
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH:
        level, depth = [value], 0
        while level := [item for outer in level for item in _items(outer)]:
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def queue_bytes(message: types_pb2.RolloutBatch) -> int:
    """Memory that rows take until they are scored, roughly; cheap, and for any message."""
    size = 4 * (sum(message.completion_lengths) + sum(message.prompt_lengths))
    size += sum(map(len, message.prompts)) + sum(map(len, message.completion_prefixes))
    for column in message.columns:
        values = getattr(column, column.WhichOneof("values") or "", None)
        if isinstance(values, types_pb2.StringValues):
            size += sum(map(len, values.values))
    return max(0, size) + _ROW_BYTES * len(message.completion_lengths)


def _row_ids(row_ids: list[int], rows: int) -> list[int]:
    _per_row("row_ids", len(row_ids), rows)
    if len(set(row_ids)) != rows:
        twice = next(row for row, count in collections.Counter(row_ids).items() if count > 1)
        raise RequestError("row_ids", f"`row_ids` must be unique, got {twice} twice.")
    return row_ids


def _check_call(message: types_pb2.RolloutBatch, *, step: int, mode: int) -> None:
    if step < 0:
        raise RequestError("step", f"`step` must be >= 0, got {step}.")
    if mode not in types_pb2.Mode.values():
        raise RequestError("mode", f"`mode` must be one of {types_pb2.Mode.keys()}, got {mode}.")
    if len(message.end_token_ids) > MAX_END_TOKEN_IDS:
        raise RequestError(
            "end_token_ids",
            f"`end_token_ids` must have at most {MAX_END_TOKEN_IDS} ids,"
            f" got {len(message.end_token_ids)}.",
        )


def _check_groups(
    group_ids: NDArray[np.int64], rows: int, num_generations: int, *, needed_by: str
) -> None:
    """Checks that groups are whole, for functions that see them together."""
    _per_row("group_ids", len(group_ids), rows)
    starts = group_starts(group_ids)
    sizes = np.diff([*starts, rows])
    if len(set(group_ids[starts].tolist())) != len(starts):
        raise RequestError(
            "group_ids",
            f"`group_ids` must have the rows of a group side by side for {needed_by!r}.",
        )
    wrong = sizes != num_generations if num_generations else np.zeros(len(sizes), np.bool_)
    wrong |= sizes > MAX_GROUP_ROWS
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        want = num_generations or f"at most {MAX_GROUP_ROWS}"
        raise RequestError(
            "group_ids",
            f"group {group_ids[starts[at]]} must have {want} rows in one call for {needed_by!r},"
            f" got {sizes[at]}. Choose sizes at which no group straddles processes.",
        )


def to_batch(
    message: types_pb2.RolloutBatch,
    *,
    tokenizer: Tokenizer,
    reward_fns: Sequence[RewardFnInfo],
    step: int,
    mode: int,
) -> Batch:
    """Checks rows and cuts them at their end tokens.

    Args:
        message: the rows as sent.
        tokenizer: knows the default end and pad ids.
        reward_fns: their required columns must be there.
        step: training step.
        mode: a `shardward.v1.Mode`.

    Raises:
        RequestError: names the field, the rule and the value.
    """
    _check_call(message, step=step, mode=mode)
    rows = len(message.completion_lengths)
    ids, lengths = _ids("completion", message.completion_ids, message.completion_lengths)
    ends = list(message.end_token_ids)
    if not ends and tokenizer.end_token_id is not None:
        ends = [tokenizer.end_token_id]
    pad = message.pad_token_id if message.HasField("pad_token_id") else tokenizer.pad_token_id
    ids, lengths = _cut("completion", ids, lengths, ends=ends, pad=pad)
    row_ids = _row_ids(list(message.row_ids), rows)
    prompts: list[str] | None = list(message.prompts)
    prompt_ids = prompt_lengths = None
    if not prompts and rows and message.prompt_lengths:
        prompts = None
        prompt_ids, prompt_lengths = _ids("prompt", message.prompt_ids, message.prompt_lengths)
        _per_row("prompt_lengths", len(prompt_lengths), rows)
        prompt_ids, prompt_lengths = _cut("prompt", prompt_ids, prompt_lengths, ends=[], pad=pad)
    else:
        _per_row("prompts", len(prompts or []), rows)
    if message.completion_prefixes:
        _per_row("completion_prefixes", len(message.completion_prefixes), rows)
    if message.group_ids:
        _per_row("group_ids", len(message.group_ids), rows)
    group_ids = None
    if rows and (whole := [fn.name for fn in reward_fns if fn.whole_groups]):
        group_ids = np.asarray(message.group_ids, np.int64)
        _check_groups(group_ids, rows, message.num_generations, needed_by=whole[0])
    columns = _columns(message.columns, rows)
    for fn in reward_fns:
        for name in fn.required_columns:
            if rows and name not in columns:
                raise RequestError(
                    "columns",
                    f"`columns` must hold {name!r}, which reward function {fn.name!r} needs;"
                    f" got {sorted(columns)}.",
                )
    return Batch(
        completion_ids=ids,
        completion_lengths=lengths,
        prompts=prompts,
        prompt_ids=prompt_ids,
        prompt_lengths=prompt_lengths,
        completion_prefixes=list(message.completion_prefixes) or None,
        columns=columns,
        row_ids=row_ids,
        group_ids=group_ids,
        step=step,
        mode="eval" if mode == types_pb2.MODE_EVAL else "train",
    )


def totals(scores: Scores, reward_fns: Sequence[RewardFnInfo]) -> NDArray[np.float64]:
    """Weighted sums over the functions whose weight is not 0: float64 [b], NaN if not OK."""
    weights = np.array([fn.weight for fn in reward_fns], np.float64)
    counted = weights != 0
    # A row without an error may still lack the values of functions that are not for its source.
    values = np.nan_to_num(scores.rewards[:, counted].astype(np.float64))
    total: NDArray[np.float64] = values @ weights[counted]
    total[scores.statuses != RowStatus.OK] = np.nan
    return total


def _exact(values: NDArray[np.floating]) -> bytes:
    """Values as float64, or nothing where float32 holds them all."""
    rounded = values.astype(np.float32)
    return (
        b"" if np.array_equal(rounded, values, equal_nan=True) else values.astype("<f8").tobytes()
    )


def from_scores(
    scores: Scores, reward_fns: Sequence[RewardFnInfo], *, total_s: float
) -> types_pb2.RewardBatch:
    """Packs rewards for the wire."""
    total = totals(scores, reward_fns)
    characters = min(MAX_MESSAGE_CHARACTERS, MAX_ERROR_CHARACTERS // max(1, len(scores.errors)))
    return types_pb2.RewardBatch(
        reward_fns=[sendable(fn.name) for fn in reward_fns],
        rewards=scores.rewards.astype("<f4").tobytes(),
        totals=total.astype("<f4").tobytes(),
        exact_rewards=_exact(scores.rewards),
        exact_totals=_exact(total),
        statuses=scores.statuses.tolist(),
        errors=[
            types_pb2.ScoringError(
                row_index=error.row,
                reward_fn=sendable(error.reward_fn),
                code=_CODES[error.status],
                message=sendable(error.message)[:characters],
                worker=sendable(error.worker),
            )
            for error in scores.errors
        ],
        extra_columns=[
            types_pb2.ExtraColumn(name=sendable(name), values=values.astype("<f4").tobytes())
            for name, values in scores.extra_columns.items()
        ],
        timings=types_pb2.Timings(
            queue_s=scores.queue_s,
            decode_s=scores.decode_s,
            score_s=scores.score_s.tolist(),
            total_s=total_s,
        ),
    )


def _pack_column(name: str, values: list[Any]) -> types_pb2.Column:
    """Packs a column by the type of its values; JSON for what has none of its own."""
    kinds = {type(value) for value in values}
    field = _FIELDS.get(kinds.pop()) if len(kinds) == 1 else None
    if field is not None:
        with contextlib.suppress(ValueError):  # beyond int64, or half of a surrogate pair
            return types_pb2.Column(name=name, **{field: {"values": values}})
    return types_pb2.Column(name=name, json_values={"values": [json.dumps(v) for v in values]})


def from_batch(batch: Batch, start: int, stop: int) -> types_pb2.RolloutBatch:
    """Packs rows [start, stop) of a batch for a worker."""
    offsets = np.concatenate([[0], np.cumsum(batch.completion_lengths)])
    message = types_pb2.RolloutBatch(
        completion_ids=batch.completion_ids[offsets[start] : offsets[stop]].astype("<i4").tobytes(),
        completion_lengths=batch.completion_lengths[start:stop].tolist(),
        completion_prefixes=(batch.completion_prefixes or [])[start:stop],
        columns=[_pack_column(name, v[start:stop]) for name, v in batch.columns.items()],
        row_ids=batch.row_ids[start:stop],
        group_ids=[] if batch.group_ids is None else batch.group_ids[start:stop].tolist(),
    )
    if batch.prompts is not None:
        # Chats never leave the process that reads them.
        message.prompts.extend(cast("Sequence[str]", batch.prompts[start:stop]))
    elif batch.prompt_ids is not None and batch.prompt_lengths is not None:
        offsets = np.concatenate([[0], np.cumsum(batch.prompt_lengths)])
        ids = batch.prompt_ids[offsets[start] : offsets[stop]]
        message.prompt_ids = ids.astype("<i4").tobytes()
        message.prompt_lengths.extend(batch.prompt_lengths[start:stop].tolist())
    return message


def to_scores(message: types_pb2.RewardBatch, rows: int) -> Scores:
    """Reads a worker's answer.

    Args:
        message: the answer.
        rows: rows that were sent.

    Raises:
        ValueError: it is not what `answers.fault` wants; says what is wrong.
    """
    functions = len(message.reward_fns)
    problem = answers.fault(message, range(rows))
    if not problem and not set(message.statuses) <= _STATUSES:
        problem = f"`statuses` must be known, got {max(message.statuses)}"
    if not problem and len(message.timings.score_s) != functions:
        problem = f"`score_s` must be of {functions}, got {len(message.timings.score_s)}"
    if problem:
        raise ValueError(f"{problem}.")
    return Scores(
        rewards=answers.exact(message.rewards, message.exact_rewards).reshape(rows, functions),
        statuses=np.asarray(message.statuses, np.uint8),
        errors=[
            RowError(
                row=error.row_index,
                reward_fn=error.reward_fn,
                status=RowStatus(message.statuses[error.row_index]),
                message=error.message,
            )
            for error in message.errors
        ],
        extra_columns={
            column.name: np.frombuffer(column.values, "<f4").astype(np.float32)
            for column in message.extra_columns
        },
        queue_s=message.timings.queue_s,
        decode_s=message.timings.decode_s,
        score_s=np.asarray(message.timings.score_s, np.float64),
    )
