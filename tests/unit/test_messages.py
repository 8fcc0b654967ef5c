# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the translation between messages and plain types, and of statuses."""

from __future__ import annotations

import types

import numpy as np
import pytest
from google.rpc import code_pb2, error_details_pb2
from shardward.v1 import types_pb2

from reward_server import messages, status
from reward_server.batch import RewardFnInfo, RowError, RowStatus, Scores, WorkersUnavailable
from reward_server.messages import RequestError

TOKENIZER = types.SimpleNamespace(vocab_size=10, end_token_id=9, pad_token_id=8)
FUNCTIONS = (
    RewardFnInfo(name="match", weight=1.0, timeout_s=10.0, required_columns=("answer",)),
    RewardFnInfo(name="style", weight=0.5, timeout_s=10.0),
    RewardFnInfo(name="shown", weight=0.0, timeout_s=10.0),
)


def ids(*values):
    """Token ids as they travel."""
    return np.asarray(values, "<i4").tobytes()


def column(name, **values):
    """A column; the argument names its type."""
    ((kind, held),) = values.items()
    return types_pb2.Column(name=name, **{kind: {"values": held}})


def rollouts(**changes):
    """Two good rows, with some fields changed; None leaves a field out."""
    fields = {
        "completion_ids": ids(1, 2, 3, 4, 5),
        "completion_lengths": [2, 3],
        "prompts": ["p", "q"],
        "columns": [column("answer", string_values=["a", "b"])],
        "row_ids": [70, 71],
        **changes,
    }
    return types_pb2.RolloutBatch(**{name: v for name, v in fields.items() if v is not None})


def to_batch(message, **values):
    """The batch of a message."""
    given = {"tokenizer": TOKENIZER, "reward_fns": FUNCTIONS, "step": 3, "mode": 2, **values}
    return messages.to_batch(message, **given)


def test_rows_arrive():
    """Ids, lengths, prompts, row ids, step and mode are those of the message."""
    batch = to_batch(rollouts(completion_prefixes=["<think>", ""]))
    assert batch.completion_ids.tolist() == [1, 2, 3, 4, 5]
    assert batch.completion_lengths.tolist() == [2, 3]
    assert (batch.prompts, batch.row_ids, batch.step) == (["p", "q"], [70, 71], 3)
    assert (batch.mode, batch.completion_prefixes) == ("eval", ["<think>", ""])
    assert to_batch(rollouts(), mode=0).mode == "train"


def test_columns_keep_their_types():
    """Text, integers, reals, truth values and JSON arrive as such, also by way of a worker."""
    values = {
        "answer": ["a", "\u00e9"],
        "whole": [2**62, -1],
        "real": [0.5, float("inf")],
        "truth": [True, False],
        "json": [[1, {"a": None}], "\ud800"],
    }
    columns = [
        column("answer", string_values=values["answer"]),
        column("whole", int64_values=values["whole"]),
        column("real", double_values=values["real"]),
        column("truth", bool_values=values["truth"]),
        column("json", json_values=['[1, {"a": null}]', '"\\ud800"']),
    ]
    batch = to_batch(rollouts(columns=columns))
    again = to_batch(messages.from_batch(batch, 0, 2))
    for columns in (batch.columns, again.columns):
        assert columns == values
        for name, held in columns.items():
            assert [type(v) for v in held] == [type(v) for v in values[name]]


def test_values_without_a_type_of_their_own_travel_as_json():
    """Mixed columns, huge integers and half surrogates survive the way to a worker."""
    columns = [
        column("answer", json_values=["1", '"a"']),
        column("huge", json_values=[str(2**70), "1"]),
        column("half", json_values=['"\\ud800"', '"b"']),
    ]
    batch = to_batch(rollouts(columns=columns))
    assert to_batch(messages.from_batch(batch, 0, 2)).columns == {
        "answer": [1, "a"],
        "huge": [2**70, 1],
        "half": ["\ud800", "b"],
    }


def test_a_part_holds_its_rows_only():
    """A part of a batch has the ids, prompts, prefixes and columns of its rows."""
    batch = to_batch(rollouts(completion_prefixes=["x", "y"]))
    part = to_batch(messages.from_batch(batch, 1, 2))
    assert part.completion_ids.tolist() == [3, 4, 5]
    assert (part.prompts, part.completion_prefixes, part.row_ids) == (["q"], ["y"], [71])
    assert part.columns == {"answer": ["b"]}


def test_prompts_as_ids():
    """Prompt ids are taken when there are no texts, without padding, and travel in parts."""
    message = rollouts(prompts=None, prompt_ids=ids(8, 8, 1, 2, 9), prompt_lengths=[3, 2])
    batch = to_batch(message)
    assert batch.prompts is None
    assert (batch.prompt_ids.tolist(), batch.prompt_lengths.tolist()) == ([1, 2, 9], [1, 2])
    part = to_batch(messages.from_batch(batch, 1, 2))
    assert (part.prompt_ids.tolist(), part.prompt_lengths.tolist()) == ([2, 9], [2])


@pytest.mark.parametrize(
    ("changes", "left", "lengths"),
    [
        ({"completion_ids": ids(1, 2, 9, 77, 5)}, [1, 2], [2, 0]),
        ({"completion_ids": ids(8, 1, 8, 4, 8)}, [1, 4], [1, 1]),
        ({"completion_ids": ids(1, 9, 3, 4, 5), "end_token_ids": [4]}, [1, 9, 3], [2, 1]),
        ({"completion_ids": ids(1, 5, 3, 4, 5), "pad_token_id": 5}, [1, 3, 4], [1, 2]),
        ({"completion_ids": ids(1, 50, 3, -1, 50), "pad_token_id": 50, "end_token_ids": [3]}, [1],
         [1, 0]),
    ],
    ids=["end", "pad", "other end", "other pad", "pad beyond the vocabulary"],
)  # fmt: skip
def test_rows_are_cut(changes, left, lengths):
    """Rows end at the first end id; padding is dropped; what is cut off is not checked."""
    batch = to_batch(rollouts(**changes))
    assert batch.completion_ids.tolist() == left
    assert batch.completion_lengths.tolist() == lengths


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"completion_ids": b"123"}, "completion_ids", "= 20 bytes, got 3"),
        ({"completion_lengths": [2, -1]}, "completion_lengths", "got -1 in row 1"),
        ({"completion_ids": ids(1, 2, 8, 2**24, 5)}, "completion_ids",
         "16777216 in row 1 at position 1"),
        ({"completion_ids": ids(1, -2, 3, 4, 5)}, "completion_ids", "-2 in row 0 at position 1"),
        ({"prompts": ["p"]}, "prompts", "one value per row (2), got 1"),
        ({"prompts": None}, "prompts", "one value per row (2), got 0"),
        ({"prompts": None, "prompt_ids": ids(1), "prompt_lengths": [1]}, "prompt_lengths", "got 1"),
        ({"prompts": None, "prompt_ids": ids(1), "prompt_lengths": [1, 1]}, "prompt_ids", "got 4"),
        ({"prompts": None, "prompt_ids": ids(1, 2**30), "prompt_lengths": [1, 1]}, "prompt_ids",
         "got 1073741824 in row 1 at position 0"),
        ({"completion_prefixes": ["x"]}, "completion_prefixes", "got 1"),
        ({"group_ids": [1, 2, 3]}, "group_ids", "got 3"),
        ({"row_ids": [7]}, "row_ids", "got 1"),
        ({"row_ids": [7, 7]}, "row_ids", "must be unique, got 7 twice"),
        ({"columns": []}, "columns", "must hold 'answer', which reward function 'match' needs"),
        ({"columns": [column("answer", string_values=["a"])]}, "columns['answer']", "got 1"),
        ({"columns": [types_pb2.Column(name="answer")]}, "columns", "'answer' must have values"),
        ({"columns": [column("answer", json_values=["{", "1"])]}, "columns", "must hold JSON"),
        ({"columns": [column("answer", json_values=["[" * 10**5, "1"])]}, "columns", "hold JSON"),
        ({"columns": [column("answer", int64_values=[1, 2])] * 2}, "columns", "unique names"),
        ({"columns": [column("", int64_values=[1, 2])]}, "columns", "unique names, got ''"),
    ],
)  # fmt: skip
def test_bad_requests(changes, field, text):
    """What is wrong is refused with the field, the rule and the value."""
    with pytest.raises(RequestError) as error:
        to_batch(rollouts(**changes))
    assert error.value.field == field
    assert text in str(error.value)


def test_negative_step_is_refused():
    """Steps count from 0."""
    with pytest.raises(RequestError, match="`step` must be >= 0, got -1"):
        to_batch(rollouts(), step=-1)


@pytest.mark.parametrize("request_id", ["", "x" * 201])
def test_request_id_has_1_to_200_characters(request_id):
    """A call without an id, or with a very long one, is refused."""
    with pytest.raises(RequestError, match=f"1 to 200 characters, got {len(request_id)}"):
        messages.check_request_id(request_id)


def test_no_rows_are_no_error():
    """A process may own no rows."""
    assert to_batch(types_pb2.RolloutBatch()).rows == 0


def scores(**changes):
    """Scores of three rows, of which the last two failed."""
    nan = float("nan")
    fields = {
        "rewards": np.asarray([[1, 2, nan], [nan, 1, 1], [1, nan, 5]], np.float32),
        "statuses": np.asarray([RowStatus.OK, RowStatus.TIMEOUT, RowStatus.INVALID], np.uint8),
        "errors": [
            RowError(row=1, reward_fn="match", status=RowStatus.TIMEOUT, message="slow"),
            RowError(row=2, reward_fn="style", status=RowStatus.INVALID, message="None"),
        ],
        "extra_columns": {"words": np.asarray([3, nan, 1], np.float32)},
        "queue_s": 0.5,
        "decode_s": 0.25,
        "score_s": np.asarray([1.0, 2.0, 3.0]),
    }
    return Scores(**{**fields, **changes})


def test_totals_leave_out_weight_0_and_failed_rows():
    """A NaN of a function that is only reported does not matter; a failed row is never 0."""
    total = messages.totals(scores(), FUNCTIONS)
    assert total.dtype == np.float64
    np.testing.assert_array_equal(total, [2.0, np.nan, np.nan])


def test_rewards_keep_float64_on_the_way():
    """Where float32 would round; else nothing more is sent, and an older peer never does."""
    plain = messages.from_scores(scores(), FUNCTIONS, total_s=4.0)
    assert (plain.exact_rewards, plain.exact_totals) == (b"", b"")
    fine = np.asarray([[1e6 + 0.1, 2, np.nan], [np.nan, 1, 1], [1e-9, np.nan, 5]])
    message = messages.from_scores(scores(rewards=fine), FUNCTIONS, total_s=4.0)
    np.testing.assert_array_equal(messages.to_scores(message, 3).rewards, fine)
    assert (
        np.frombuffer(message.exact_totals, "<f8")[0]
        == messages.totals(scores(rewards=fine), FUNCTIONS)[0]
    )
    message.exact_rewards = b""
    np.testing.assert_array_equal(messages.to_scores(message, 3).rewards, fine.astype(np.float32))
    message.exact_rewards = b"1234"
    with pytest.raises(ValueError, match="`exact_rewards` must be of 3 rows x 3 functions, 72 "):
        messages.to_scores(message, 3)


def test_scores_survive_the_way():
    """What a worker says arrives as it was; codes are those of google.rpc."""
    message = messages.from_scores(scores(), FUNCTIONS, total_s=4.0)
    assert list(message.reward_fns) == ["match", "style", "shown"]
    assert [error.code for error in message.errors] == [4, 3]
    assert message.timings.total_s == 4.0
    again, before = messages.to_scores(message, 3), scores()
    np.testing.assert_array_equal(again.rewards, before.rewards)
    np.testing.assert_array_equal(again.statuses, before.statuses)
    np.testing.assert_array_equal(again.extra_columns["words"], before.extra_columns["words"])
    assert again.errors == before.errors
    assert (again.queue_s, again.decode_s, again.score_s.tolist()) == (0.5, 0.25, [1, 2, 3])


def test_messages_of_failed_rows_are_bounded():
    """An answer stays below the limit of a message, however many rows failed."""
    rows, limit = 20_000, messages.MAX_ERROR_CHARACTERS
    many = Scores(
        rewards=np.full((rows, 3), np.nan, np.float32),
        statuses=np.full(rows, RowStatus.ERROR, np.uint8),
        errors=[
            RowError(row=row, reward_fn="match", status=RowStatus.ERROR, message="x" * 1000)
            for row in range(rows)
        ],
        extra_columns={},
        queue_s=0.0,
        decode_s=0.0,
        score_s=np.zeros(3),
    )
    message = messages.from_scores(many, FUNCTIONS, total_s=0.0)
    assert len(message.errors) == rows
    assert limit // 2 < sum(len(error.message) for error in message.errors) <= limit


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda m: m.statuses.append(1), "`statuses` must be of 3 rows x 3 functions, 3 in all"),
        (lambda m: m.statuses.__setitem__(1, 300), "`statuses` must be known, got 300"),
        (lambda m: m.statuses.__setitem__(0, 2), "one for each of the 3 rows that are not OK"),
        (lambda m: m.statuses.__setitem__(1, 1), "one for each of the 1 rows that are not OK"),
        (lambda m: setattr(m, "rewards", m.rewards[4:]), "`rewards` must be of 3 rows"),
        (lambda m: setattr(m, "totals", m.totals[1:]), "`totals` must be of .* 12 bytes .* got 11"),
        (lambda m: setattr(m, "totals", b"\0" * 12), "row 1 is not OK but its total is 0"),
        (lambda m: setattr(m, "exact_rewards", b"\0" * 72), "`exact_rewards` must be the values"),
        (lambda m: setattr(m.errors[0], "row_index", 3), "`errors` must be one for each"),
        (lambda m: setattr(m.errors[0], "row_index", -1), "`errors` must be one for each"),
        (lambda m: setattr(m.errors[0], "reward_fn", "x" * 10**6), "must name functions among"),
        (lambda m: m.errors.reverse(), "in their order"),
        (lambda m: m.errors.extend(list(m.errors) * 1000), "got 2002"),
        (lambda m: setattr(m.extra_columns[0], "values", b""), "`extra_columns\\['words'\\]` must"),
        (lambda m: m.timings.ClearField("score_s"), "`score_s` must be of 3, got 0"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(spoil, says):
    """A worker that answers too much, too little or in contradictions is never half believed."""
    message = messages.from_scores(scores(), FUNCTIONS, total_s=0.0)
    spoil(message)
    with pytest.raises(ValueError, match=says):
        messages.to_scores(message, 3)


@pytest.mark.parametrize(
    ("error", "code", "reason", "detail"),
    [
        (RequestError("step", "no"), code_pb2.INVALID_ARGUMENT, "BAD_REQUEST", "BadRequest"),
        (status.TokenizerMismatch(expected="a", got="b"), code_pb2.FAILED_PRECONDITION,
         "TOKENIZER_MISMATCH", None),
        (status.RewardFnsChanged(expected="a", got="b"), code_pb2.FAILED_PRECONDITION,
         "REWARD_FNS_CHANGED", None),
        (WorkersUnavailable("none"), code_pb2.UNAVAILABLE, "WORKERS_UNAVAILABLE", "RetryInfo"),
        (status.QueueFull("full"), code_pb2.RESOURCE_EXHAUSTED, "QUEUE_FULL", "RetryInfo"),
        (TimeoutError(), code_pb2.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", None),
        (KeyError("secret"), code_pb2.INTERNAL, "INTERNAL", None),
    ],
)  # fmt: skip
def test_statuses(error, code, reason, detail):
    """Each exception has its code, a reason for programs, and details; others stay hidden."""
    made = status.from_exception(error)
    info = error_details_pb2.ErrorInfo()
    assert made.details[0].Unpack(info)
    assert (made.code, info.reason, info.domain) == (code, reason, "shardward")
    assert made.message
    assert "secret" not in made.message
    names = [packed.TypeName().rpartition(".")[2] for packed in made.details[1:]]
    assert names == ([detail] if detail else [])


class Refusing:
    """A call that ends when it is told to."""

    async def abort_with_status(self, made):
        """Ends it as gRPC does."""
        raise ConnectionError(made.details)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RequestError("step", "quotes a row"),
         "call refused caller=me reason=BAD_REQUEST field=step"),
        (status.RewardFnsChanged(expected="a", got="b"),
         "call refused caller=me reason=REWARD_FNS_CHANGED field=-"),
        (status.QueueFull("full"), "call put off caller=me reason=QUEUE_FULL"),
        (TimeoutError("1 of 2 rows"),
         "call failed caller=me reason=DEADLINE_EXCEEDED: 1 of 2 rows"),
        (KeyError("told"), "call failed caller=me"),
    ],
)  # fmt: skip
async def test_a_call_without_an_answer_is_a_line_of_the_log(error, line, caplog):
    """Who called and why; what a caller is not told of an unknown error is there, rows are not."""
    caplog.set_level("INFO")
    with pytest.raises(ConnectionError):
        await status.abort(Refusing(), error, caller="me")
    assert [record.getMessage() for record in caplog.records] == [line]
    assert ("told" in caplog.text) == isinstance(error, KeyError)
    assert "quotes" not in caplog.text
