# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""NumPy rows to messages and back. Pure: no gRPC, no JAX.

Legend: b rows, T completion tokens, F reward functions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from shardward import answers
from shardward.v1 import reward_pb2, types_pb2

from trainer.config import MAX_MESSAGE_BYTES
from trainer.decode import vocabulary
from trainer.errors import ScoringFailed, one_line
from trainer.values import plain_column, wire_bytes

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

OK = types_pb2.ROW_STATUS_OK
_FIELDS = {
    str: "string_values",
    bool: "bool_values",
    int: "int64_values",
    float: "double_values",
}
# What a request has beside its rows.
_HEAD_BYTES = 64 * 2**10
_MODES = {"train": types_pb2.MODE_TRAIN, "eval": types_pb2.MODE_EVAL}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalRollouts:
    """Rows that this process sends to its reward server.

    Attributes:
        row_ids: int64 [b], global and unique within the run.
        group_ids: int64 [b], equal for the rows of one prompt.
        prompts: b texts.
        completion_ids: int32 [b, T]; what follows the first end token is ignored.
        end_token_ids: ids that end a completion.
        pad_token_id: the padding id; may be one of the end ids.
        columns: dataset columns by name, each with b values.
        completion_prefixes: b texts put before the completions, or None.
        num_generations: rows of a whole group; 0 if unknown.
        step: training step.
        mode: "train" or "eval".
    """

    row_ids: NDArray[np.int64]
    group_ids: NDArray[np.int64]
    prompts: Sequence[str]
    completion_ids: NDArray[np.int32]
    end_token_ids: Sequence[int]
    pad_token_id: int
    columns: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    completion_prefixes: Sequence[str] | None = None
    num_generations: int = 0
    step: int = 0
    mode: str = "train"

    def __post_init__(self) -> None:
        """Checks lengths.

        Raises:
            ValueError: names the field and both lengths.
        """
        b = len(self.row_ids)
        sizes = {
            "group_ids": len(self.group_ids),
            "prompts": len(self.prompts),
            "completion_ids": len(self.completion_ids),
        }
        sizes |= {f"columns[{name!r}]": len(values) for name, values in self.columns.items()}
        if self.completion_prefixes is not None:
            sizes["completion_prefixes"] = len(self.completion_prefixes)
        for name, size in sizes.items():
            if size != b:
                raise ValueError(f"`{name}` must have one value per row ({b}), got {size}.")


@dataclasses.dataclass(frozen=True, slots=True)
class RowFailure:
    """Why a row has no reward.

    Attributes:
        row_id: global id of the row.
        status: name of the row's status, "TIMEOUT" for example.
        reward_fn: the function that failed.
        message: one sentence.
        worker: address of the reward worker, or "" for the server's own processes.
    """

    row_id: int
    status: str
    reward_fn: str
    message: str
    worker: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowRewards:
    """Rewards of rows, in the order in which they were sent.

    Attributes:
        reward_fns: names of the F functions.
        rewards: float64 [b, F], NaN where a function gave no value.
        totals: float64 [b], NaN where the row failed.
        valid: bool [b], whether the row has a total.
        failures: one for each failed row.
        extra_columns: float32 [b] by name.
        queue_s: longest wait in the server's queue.
        total_s: longest time in the server.
    """

    reward_fns: tuple[str, ...]
    rewards: NDArray[np.float64]
    totals: NDArray[np.float64]
    valid: NDArray[np.bool_]
    failures: list[RowFailure]
    extra_columns: dict[str, NDArray[np.float32]]
    queue_s: float
    total_s: float


def completion_lengths(
    completion_ids: NDArray[np.int32], end_token_ids: Sequence[int]
) -> NDArray[np.int32]:
    """Counts tokens up to and with the first end token: int32 [b].

    Example:
        >>> completion_lengths(np.array([[5, 2, 7], [5, 6, 7]], np.int32), [2])
        array([2, 3], dtype=int32)
    """
    ends = np.zeros(completion_ids.shape, np.bool_)
    for end_token_id in end_token_ids:
        ends |= completion_ids == end_token_id
    width = completion_ids.shape[1]
    lengths: NDArray[np.int32] = np.where(ends.any(axis=1), ends.argmax(axis=1) + 1, width).astype(
        np.int32
    )
    return lengths


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Hashes the vocabulary of a tokenizer, or returns "" where it shows none.

    The definition is that of `ServiceInfo.tokenizer_fingerprint` in the contract.
    """
    tokens = vocabulary(tokenizer)
    if not tokens:
        return ""
    digest = hashlib.sha256()
    for token, index in sorted(tokens.items(), key=lambda item: item[1]):
        digest.update(f"{index}\t{token}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A dataset column, ready to be cut into messages.

    Attributes:
        name: of the column.
        field: of the message that holds its values.
        values: b values, JSON documents among them.
        sizes: int64 [b], bytes of each in a message, roughly.
    """

    name: str
    field: str
    values: list[Any]
    sizes: NDArray[np.int64]

    def message(self, rows: slice) -> types_pb2.Column:
        """The values of some rows."""
        return types_pb2.Column(name=self.name, **{self.field: {"values": self.values[rows]}})


def encode_column(name: str, values: Sequence[Any]) -> EncodedColumn:
    """Encodes one dataset column by the type of its values; anything unusual as JSON.

    Raises:
        ValueError: a value can't travel; names the column, its row and the remedy.
    """
    # The rows of a prompt share a value, which is made plain and encoded once.
    values, first = list(values), dict[int, int]()
    index = [first.setdefault(id(value), len(first)) for value in values]
    rows = np.unique(index, return_index=True)[1].tolist()
    plain = plain_column(name, values, rows)
    kinds = {type(value) for value in plain}
    field = _FIELDS.get(kinds.pop(), "json_values") if len(kinds) == 1 else "json_values"
    if field == "int64_values" and not all(-(2**63) <= value < 2**63 for value in plain):
        field = "json_values"
    if field == "json_values":
        plain = [json.dumps(value) for value in plain]
    sizes = np.array([wire_bytes(value) for value in plain], np.int64)
    return EncodedColumn(name, field, [plain[i] for i in index], sizes[index])


def encode_columns(
    rollouts: LocalRollouts, taken: Container[str] | None = None
) -> list[EncodedColumn]:
    """Encodes the columns that reward functions take.

    Args:
        rollouts: the rows.
        taken: names of these columns, or None for all.

    Raises:
        ValueError: see `encode_column`.
    """
    return [
        encode_column(name, values)
        for name, values in rollouts.columns.items()
        if taken is None or name in taken
    ]


def split_rows(
    rollouts: LocalRollouts,
    lengths: NDArray[np.int32],
    columns: Sequence[EncodedColumn],
    call_bytes: int,
    *,
    limit: int = MAX_MESSAGE_BYTES,
) -> Iterator[slice]:
    """Cuts rows into runs of at most about call_bytes, between groups where those fit a message.

    Args:
        rollouts: all rows.
        lengths: int32 [b], tokens of each.
        columns: that go with them.
        call_bytes: wanted size of a call.
        limit: largest size of a message.

    Raises:
        ValueError: one row alone is above the limit; names its largest part.
    """
    if not len(lengths):
        return
    parts = {
        "completion_ids": 4 * lengths.astype(np.int64),
        "prompts": _text_bytes(rollouts.prompts),
        **{f"columns[{column.name!r}]": column.sizes for column in columns},
    }
    if rollouts.completion_prefixes is not None:
        parts["completion_prefixes"] = _text_bytes(rollouts.completion_prefixes)
    # A value comes with its tag and its length, a row with its ids.
    sizes = sum(parts.values(), np.int64(8 * len(parts) + 24) * np.ones_like(lengths, np.int64))
    limit -= _HEAD_BYTES
    if sizes.max() > limit:
        row = int(sizes.argmax())
        name = max(parts, key=lambda part: parts[part][row])
        raise ValueError(
            f"a row must have at most {limit} bytes, got {sizes[row]} in row"
            f" {rollouts.row_ids[row]}, {parts[name][row]} of them in `{name}`. Shorten it, or give"
            " a path and read the file in the reward function."
        )
    firsts = np.flatnonzero(np.diff(rollouts.group_ids, prepend=rollouts.group_ids[:1] - 1))
    start, total = 0, 0
    for first, group in zip(firsts.tolist(), np.split(sizes, firsts[1:]), strict=True):
        # Rows of a group that no message can hold go apart.
        alone = group.sum() > limit
        pieces = group.tolist() if alone else [int(group.sum())]
        for row, size in enumerate(pieces, first):
            if row > start and total + size > call_bytes:
                yield slice(start, row)
                start, total = row, 0
            total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def _text_bytes(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.array([len(text.encode("utf-8", "replace")) for text in texts], np.int64)


def _without_padding(ids: NDArray[np.int32], lengths: NDArray[np.int32]) -> bytes:
    """Joins the first `lengths` ids of each row, as little-endian int32."""
    whole = np.ascontiguousarray(ids, "<i4").reshape(-1).view(np.uint8).data
    starts = (4 * ids.shape[1] * np.arange(len(ids))).tolist()
    return b"".join(
        [whole[start : start + 4 * n] for start, n in zip(starts, lengths.tolist(), strict=True)]
    )


def encode_request(
    rollouts: LocalRollouts,
    rows: slice,
    lengths: NDArray[np.int32],
    columns: Sequence[EncodedColumn],
    *,
    request_id: str,
    process_index: int,
    fingerprint: str,
    reward_fns_digest: str = "",
    caller: str = "",
) -> reward_pb2.ScoreRolloutsRequest:
    """Encodes some rows as one request; ids travel without padding.

    Args:
        rollouts: all rows.
        rows: those to encode.
        lengths: int32 [b], as `completion_lengths` gives them for all rows.
        columns: of all rows.
        request_id: id of the call.
        process_index: index of this process.
        fingerprint: of the trainer's tokenizer, or "".
        reward_fns_digest: of the functions that the run began with, or "".
        caller: name of the client.
    """
    prefixes = rollouts.completion_prefixes
    batch = types_pb2.RolloutBatch(
        completion_ids=_without_padding(rollouts.completion_ids[rows], lengths[rows]),
        completion_lengths=lengths[rows].tolist(),
        prompts=list(rollouts.prompts[rows]),
        completion_prefixes=list(prefixes[rows]) if prefixes is not None else [],
        columns=[column.message(rows) for column in columns],
        row_ids=rollouts.row_ids[rows].tolist(),
        group_ids=rollouts.group_ids[rows].tolist(),
        end_token_ids=list(rollouts.end_token_ids),
        pad_token_id=rollouts.pad_token_id,
        num_generations=rollouts.num_generations,
    )
    return reward_pb2.ScoreRolloutsRequest(
        request_id=request_id,
        rollouts=batch,
        step=rollouts.step,
        mode=_MODES[rollouts.mode],
        process_index=process_index,
        tokenizer_fingerprint=fingerprint,
        reward_fns_digest=reward_fns_digest,
        caller=caller,
    )


def decode_response(
    request: reward_pb2.ScoreRolloutsRequest, response: reward_pb2.ScoreRolloutsResponse
) -> RowRewards:
    """Decodes an answer and checks it against its request.

    Raises:
        ScoringFailed: another request's answer, rows missing or out of order, or rewards that are
            not what `answers.fault` wants.
    """
    row_ids, batch = list(request.rollouts.row_ids), response.rewards

    def refuse(what: str) -> ScoringFailed:
        return ScoringFailed(
            f"the reward server's answer can't be used: {what}.",
            reason="BAD_RESPONSE",
            request_id=request.request_id,
        )

    if response.request_id != request.request_id:
        got = one_line(response.request_id)
        raise refuse(f"request_id is {got!r}, not {request.request_id!r}")
    if list(response.row_ids) != row_ids:
        raise refuse("row ids differ from those sent, or are in another order")
    if problem := answers.fault(batch, row_ids):
        raise refuse(problem)
    failures = [
        RowFailure(
            row_ids[e.row_index],
            _status_name(batch.statuses[e.row_index]),
            e.reward_fn,
            one_line(e.message),
            one_line(e.worker),
        )
        for e in batch.errors
    ]
    extra = {c.name: np.frombuffer(c.values, "<f4") for c in batch.extra_columns}
    return RowRewards(
        reward_fns=tuple(batch.reward_fns),
        rewards=answers.exact(batch.rewards, batch.exact_rewards).reshape(len(row_ids), -1),
        totals=answers.exact(batch.totals, batch.exact_totals),
        valid=np.asarray(batch.statuses, np.int32) == OK,
        failures=failures,
        extra_columns=extra,
        queue_s=batch.timings.queue_s,
        total_s=batch.timings.total_s,
    )


def _status_name(status: int) -> str:
    # A newer server may know more statuses.
    known = status in types_pb2.RowStatus.values()
    return types_pb2.RowStatus.Name(status).removeprefix("ROW_STATUS_") if known else str(status)


def select_rollouts(rollouts: LocalRollouts, rows: Sequence[int]) -> LocalRollouts:
    """Picks rows, in the order given."""
    prefixes = rollouts.completion_prefixes
    index = np.asarray(rows, np.int64)
    return dataclasses.replace(
        rollouts,
        row_ids=rollouts.row_ids[index],
        group_ids=rollouts.group_ids[index],
        prompts=[rollouts.prompts[i] for i in rows],
        completion_ids=rollouts.completion_ids[index],
        columns={name: [values[i] for i in rows] for name, values in rollouts.columns.items()},
        completion_prefixes=None if prefixes is None else [prefixes[i] for i in rows],
    )


def select_rewards(rewards: RowRewards, rows: Sequence[int], row_ids: Sequence[int]) -> RowRewards:
    """Picks the rewards of rows, in the order given, and the failures of these row ids."""
    index, wanted = np.asarray(rows, np.int64), set(row_ids)
    return dataclasses.replace(
        rewards,
        rewards=rewards.rewards[index],
        totals=rewards.totals[index],
        valid=rewards.valid[index],
        failures=[failure for failure in rewards.failures if failure.row_id in wanted],
        extra_columns={name: values[index] for name, values in rewards.extra_columns.items()},
    )


def no_rewards(
    reward_fns: Sequence[str], row_ids: Sequence[int], status: str, message: str
) -> RowRewards:
    """Says that rows have no reward, all for one reason."""
    b = len(row_ids)
    return RowRewards(
        reward_fns=tuple(reward_fns),
        rewards=np.full((b, len(reward_fns)), np.nan),
        totals=np.full(b, np.nan),
        valid=np.zeros(b, np.bool_),
        failures=[RowFailure(row_id, status, "", message) for row_id in row_ids],
        extra_columns={},
        queue_s=0.0,
        total_s=0.0,
    )


def concatenate_rollouts(parts: Sequence[LocalRollouts]) -> LocalRollouts:
    """Joins rows of one step; the parts differ in rows alone."""
    if len(parts) == 1:
        return parts[0]
    prefixes = [part.completion_prefixes for part in parts]
    return dataclasses.replace(
        parts[0],
        row_ids=np.concatenate([part.row_ids for part in parts]),
        group_ids=np.concatenate([part.group_ids for part in parts]),
        prompts=[prompt for part in parts for prompt in part.prompts],
        completion_ids=np.concatenate([part.completion_ids for part in parts]),
        columns={
            name: [value for part in parts for value in part.columns[name]]
            for name in parts[0].columns
        },
        completion_prefixes=[text for some in prefixes for text in some or []] or None,
    )


def concatenate(parts: Sequence[RowRewards]) -> RowRewards:
    """Joins the answers of a batch that was sent in several calls.

    Raises:
        ScoringFailed: the calls were answered with different functions.
    """
    names = {part.reward_fns for part in parts}
    if len(names) != 1:
        raise ScoringFailed(
            f"the reward server changed its functions within a batch: {sorted(names)}.",
            reason="BAD_RESPONSE",
        )
    columns = {name for part in parts for name in part.extra_columns}
    return RowRewards(
        reward_fns=parts[0].reward_fns,
        rewards=np.concatenate([part.rewards for part in parts]),
        totals=np.concatenate([part.totals for part in parts]),
        valid=np.concatenate([part.valid for part in parts]),
        failures=[failure for part in parts for failure in part.failures],
        extra_columns={
            name: np.concatenate(
                [
                    part.extra_columns.get(name, np.full(len(part.totals), np.nan, np.float32))
                    for part in parts
                ]
            )
            for name in sorted(columns)
        },
        queue_s=max(part.queue_s for part in parts),
        total_s=max(part.total_s for part in parts),
    )
