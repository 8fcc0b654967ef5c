# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows to messages and back; answers that must be refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from shardward.v1 import reward_pb2, types_pb2

from trainer import codec
from trainer.errors import ScoringFailed


def rollouts(**changes):
    """Two rows of one group."""
    values = {
        "row_ids": np.array([4, 5]),
        "group_ids": np.array([2, 3]),
        "prompts": ["1+1=", "1+1="],
        "completion_ids": np.array([[7, 1, 9, 9], [7, 8, 8, 7]], np.int32),
        "end_token_ids": [1],
        "pad_token_id": 0,
        "columns": {"answer": np.array(["2", "2"])},
    }
    return codec.LocalRollouts(**(values | changes))


def encode(local):
    """Both rows as a request."""
    lengths = codec.completion_lengths(local.completion_ids, local.end_token_ids)
    return codec.encode_request(
        local,
        slice(0, 2),
        lengths,
        codec.encode_columns(local),
        request_id="r",
        process_index=1,
        fingerprint="f",
    )


def answer(request, **changes):
    """An answer with a good and a failed row, or changed."""
    values = {
        "reward_fns": ["a"],
        "rewards": np.array([1.0, np.nan], "<f4").tobytes(),
        "totals": np.array([1.0, np.nan], "<f4").tobytes(),
        "statuses": [types_pb2.ROW_STATUS_OK, types_pb2.ROW_STATUS_ERROR],
        "errors": [types_pb2.ScoringError(row_index=1, reward_fn="a", message="boom")],
    }
    ids = changes.pop("row_ids", list(request.rollouts.row_ids))
    name = changes.pop("request_id", request.request_id)
    batch = types_pb2.RewardBatch(**(values | changes))
    return reward_pb2.ScoreRolloutsResponse(request_id=name, rewards=batch, row_ids=ids)


def test_ids_travel_without_padding() -> None:
    """Ids are little-endian int32 up to and with the first end token."""
    request = encode(rollouts())
    assert list(request.rollouts.completion_lengths) == [2, 4]
    ids = np.frombuffer(request.rollouts.completion_ids, "<i4")
    assert ids.tolist() == [7, 1, 7, 8, 8, 7]
    assert list(request.rollouts.row_ids) == [4, 5]
    assert request.process_index == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b"], "string_values"),
        (np.array([1, 2]), "int64_values"),
        (np.array([1.5, 2.0]), "double_values"),
        (np.array([True, False]), "bool_values"),
        ([{"a": 1}, None], "json_values"),
        ([1, 2.5], "json_values"),
        ([2**70, 1], "json_values"),
    ],
)
def test_columns_keep_their_type(values, kind) -> None:
    """A column travels as its own type, anything unusual as JSON."""
    column = codec.encode_column("c", values).message(slice(None))
    assert column.WhichOneof("values") == kind
    sent = list(getattr(column, kind).values)
    if kind == "json_values":
        sent = [json.loads(text) for text in sent]
    assert sent == list(values)


def test_column_without_a_form_is_refused() -> None:
    """The error names the column."""
    with pytest.raises(ValueError, match=r"column 'c' must hold .* got object in row 1"):
        codec.encode_column("c", [1, object()])


def test_lengths_must_match() -> None:
    """One value per row, or the field is named with both lengths."""
    with pytest.raises(ValueError, match=r"`prompts` must have one value per row \(2\), got 1"):
        rollouts(prompts=["x"])


def test_split_rows_covers_every_row_once() -> None:
    """A batch over the limit is cut between rows; a row alone over it still goes."""
    local = rollouts()
    lengths = codec.completion_lengths(local.completion_ids, local.end_token_ids)
    assert list(codec.split_rows(local, lengths, [], 10**6)) == [slice(0, 2)]
    assert list(codec.split_rows(local, lengths, [], 1)) == [slice(0, 1), slice(1, 2)]


def test_answer_with_a_failed_row() -> None:
    """A failed row has no total, its reason and its global id."""
    request = encode(rollouts())
    rewards = codec.decode_response(request, answer(request))
    assert rewards.valid.tolist() == [True, False]
    assert rewards.failures == [codec.RowFailure(5, "ERROR", "a", "boom")]


def test_exact_values_take_the_place_of_rounded_ones() -> None:
    """A server that has float64 sends it where float32 would round."""
    request = encode(rollouts())
    values = np.array([1e6 + 0.1, np.nan])
    fields = {
        f"{kind}{name}": values.astype(type_).tobytes()
        for kind, type_ in (("", "<f4"), ("exact_", "<f8"))
        for name in ("rewards", "totals")
    }
    got = codec.decode_response(request, answer(request, **fields))
    assert (got.totals[0], got.rewards[0, 0]) == (1e6 + 0.1, 1e6 + 0.1)
    assert codec.decode_response(request, answer(request)).totals.dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"request_id": "other"}, "request_id"),
        ({"row_ids": [5, 4]}, "another order"),
        ({"row_ids": [4]}, "row ids differ"),
        ({"statuses": [types_pb2.ROW_STATUS_OK]}, "`statuses` must be of 2 rows"),
        ({"statuses": [0, 99]}, "one for each of the 2 rows that are not OK"),
        ({"errors": []}, "one for each of the 1 rows that are not OK, in their order, got 0"),
        ({"totals": b"1234"}, "`totals` must be of 2 rows"),
        (
            {"totals": np.array([np.inf, np.nan], "<f4").tobytes()},
            "row 4 is OK but its total is inf",
        ),
        ({"totals": np.array([0, 0], "<f4").tobytes()}, "row 5 is not OK but its total is 0"),
        ({"exact_totals": np.array([np.nan, 0]).tobytes()}, "must be the values of `totals`"),
        ({"exact_totals": b"1234"}, "`exact_totals` must be of 2 rows"),
        ({"exact_rewards": b"1234"}, "`exact_rewards` must be of 2 rows"),
    ],
)
def test_bad_answers_are_refused(changes, message) -> None:
    """Coverage, order, length and finiteness are checked by the client too."""
    request = encode(rollouts())
    with pytest.raises(ScoringFailed, match=message):
        codec.decode_response(request, answer(request, **changes))


def test_concatenate_keeps_order_and_functions() -> None:
    """Calls of one batch join in order; other functions half-way are an error."""
    request = encode(rollouts())
    part = codec.decode_response(request, answer(request))
    joined = codec.concatenate([part, part])
    assert joined.valid.tolist() == [True, False, True, False]
    other = dataclasses.replace(part, reward_fns=("b",))
    with pytest.raises(ScoringFailed, match="changed its functions"):
        codec.concatenate([part, other])


def test_split_rows_keeps_groups_whole() -> None:
    """A batch is cut between groups only, whatever the limit."""
    local = rollouts(group_ids=np.array([2, 2]))
    lengths = codec.completion_lengths(local.completion_ids, local.end_token_ids)
    assert list(codec.split_rows(local, lengths, [], 1)) == [slice(0, 2)]


def test_shared_values_are_encoded_once() -> None:
    """The generations of a prompt share its value; what an array makes for a moment is not."""

    class Counted(dict):
        """Counts how often it is read."""

        reads = 0

        def items(self):
            Counted.reads += 1
            return super().items()

    value, other = Counted(a=1), Counted(a=2)
    column = codec.encode_column("c", np.repeat(np.array([value, other]), 4))
    assert Counted.reads == 2
    assert column.values == ['{"a": 1}'] * 4 + ['{"a": 2}'] * 4
    for passing in (np.arange(1000) * 1000, np.arange(1000).astype(str)):
        assert codec.encode_column("c", passing).values == passing.tolist()


def test_no_rows_make_no_call() -> None:
    """A process that owns no row sends nothing."""
    local = rollouts(
        row_ids=np.empty(0, np.int64),
        group_ids=np.empty(0, np.int64),
        prompts=[],
        completion_ids=np.empty((0, 4), np.int32),
        columns={"a": []},
    )
    lengths = codec.completion_lengths(local.completion_ids, [1])
    assert list(codec.split_rows(local, lengths, codec.encode_columns(local), 10)) == []


def test_split_rows_counts_columns() -> None:
    """Large columns make more calls; each message is as large as was said."""
    n, g = 64, 4
    local = rollouts(
        row_ids=np.arange(n),
        group_ids=np.arange(n) // g,
        prompts=["p"] * n,
        completion_ids=np.full((n, 4), 7, np.int32),
        columns={"tests": ["x" * 10_000] * n, "json": [["\u00e4" * 500]] * n, "i": [1] * n},
    )
    lengths = codec.completion_lengths(local.completion_ids, [1])
    columns = codec.encode_columns(local)
    runs = list(codec.split_rows(local, lengths, columns, 200_000))
    assert [row for run in runs for row in range(run.start, run.stop)] == list(range(n))
    assert all(run.start % g == 0 for run in runs)
    assert len(runs) > 1
    sizes = []
    for run in runs:
        request = codec.encode_request(
            local, run, lengths, columns, request_id="r", process_index=0, fingerprint=""
        )
        sizes.append(request.ByteSize())
    assert max(sizes) <= 200_000
    assert min(sizes[:-1]) > 150_000


def test_a_group_that_no_message_holds_is_cut() -> None:
    """Its rows go in several calls, which functions that see one row each don't mind."""
    local = rollouts(group_ids=np.array([2, 2]), columns={"t": ["x" * 60_000, "y" * 60_000]})
    lengths = codec.completion_lengths(local.completion_ids, [1])
    columns = codec.encode_columns(local)
    limit = 64 * 2**10 + 100_000
    runs = list(codec.split_rows(local, lengths, columns, 50_000, limit=limit))
    assert runs == [slice(0, 1), slice(1, 2)]


def test_a_row_that_no_message_holds_is_named() -> None:
    """With the id of the row, its largest column and that one's size."""
    local = rollouts(columns={"a": ["x", "x"], "t": ["x", "y" * 60_000]})
    lengths = codec.completion_lengths(local.completion_ids, [1])
    columns = codec.encode_columns(local)
    with pytest.raises(ValueError, match=r"in row 5, 60000 of them in `columns\['t'\]`"):
        list(codec.split_rows(local, lengths, columns, 50_000, limit=64 * 2**10 + 50_000))


def test_columns_that_no_function_takes_stay() -> None:
    """Only those that are taken are encoded; None takes all."""
    local = rollouts(columns={"a": [1, 2], "b": [3, 4]})
    assert [c.name for c in codec.encode_columns(local, {"b", "c"})] == ["b"]
    assert [c.name for c in codec.encode_columns(local)] == ["a", "b"]
