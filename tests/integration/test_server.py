# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the reward service over a unix socket, with a real pool of children."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from shardward.v1 import reward_pb2, types_pb2

from reward_server.batch import RewardFnInfo, RowStatus, Scores
from reward_server.channel import (
    CLIENT_OPTIONS,
    KEEPALIVE_TIME_MS,
    MAX_MESSAGE_BYTES,
    MIN_PING_INTERVAL_MS,
    SERVER_OPTIONS,
)
from reward_server.config import PoolConfig, RewardsConfig
from reward_server.pool import Pool
from tests.integration import service
from trainer import connection

CODE = grpc.StatusCode


@pytest.fixture
def pool(files):
    """A pool that has not been started."""
    return Pool(RewardsConfig.load(files / "rewards.toml"), files, PoolConfig(slots=2))


class StubScorer:
    """Gives every row 1.0, or does what `act` does; for what a pool can't be made to do."""

    reward_fns = (RewardFnInfo(name="one", weight=1.0, timeout_s=1.0),)
    reward_fns_digest = "d1"
    slots, rows_per_slot, workers = 1, 1, 0
    problem, unusable_workers, children = "", {}, {}

    def __init__(self, act=None):
        """Takes a coroutine function that is called before every batch is scored."""
        self.act = act
        self.batches = []

    async def start(self):
        """Needs nothing."""

    async def close(self):
        """Needs nothing."""

    async def score(self, batch, *, timeout_s):
        """Counts the batch and scores it."""
        self.batches.append(batch)
        if self.act is not None:
            await self.act()
        return Scores(
            rewards=np.ones((batch.rows, 1), np.float32),
            statuses=np.full(batch.rows, RowStatus.OK, np.uint8),
            errors=[],
            extra_columns={},
            queue_s=0.0,
            decode_s=0.0,
            score_s=np.zeros(1),
        )


async def fails(call):
    """The error of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


async def test_failed_rows_stay_beside_good_ones(tmp_path, tokenizer, pool):
    """Rows that raise, hang, crash or give None have a status; all others their rewards."""
    rows = ["good", "raise", "ok", "none", "sleep", "fine", "kill", "end"]
    async with service.serving(tmp_path, pool, tokenizer) as (stub, _):
        answer = await stub.ScoreRollouts(service.request(rows), timeout=60)
        info = (await stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest())).info
    rewards = answer.rewards
    assert (answer.request_id, list(answer.row_ids)) == ("call", list(range(1000, 1008)))
    assert list(rewards.reward_fns) == ["faulty", "length", "slow_tail"]
    failed = {1: RowStatus.ERROR, 3: RowStatus.INVALID, 4: RowStatus.TIMEOUT, 6: RowStatus.CRASHED}
    assert list(rewards.statuses) == [failed.get(row, RowStatus.OK) for row in range(8)]
    assert [error.row_index for error in rewards.errors] == [1, 3, 4, 6]
    assert [error.code for error in rewards.errors] == [13, 3, 4, 13]
    expected = [np.nan if row in failed else 1 + len(text) / 2 for row, text in enumerate(rows)]
    np.testing.assert_array_equal(service.totals(rewards), np.asarray(expected, np.float32))
    matrix = np.frombuffer(rewards.rewards, "<f4").reshape(8, 3)
    assert matrix[0].tolist() == [1, 4, 1]
    assert rewards.timings.total_s > 0.5
    assert len(rewards.timings.score_s) == 3
    assert (info.rows_scored, info.slots, info.workers) == (8, 2, 0)
    assert info.tokenizer_fingerprint == tokenizer.fingerprint
    assert (info.vocab_size, info.max_message_bytes) == (103, MAX_MESSAGE_BYTES)
    assert [list(fn.required_columns) for fn in info.reward_fns] == [[], [], ["seconds"]]


async def test_bad_requests_are_refused(tmp_path, tokenizer, pool):
    """Each mistake has its code, reason and field, and nothing is scored."""
    good = service.request(["ab", "c"])

    def changed(**fields):
        request = reward_pb2.ScoreRolloutsRequest()
        request.CopyFrom(good)
        for name, value in fields.items():
            target = request if name in ("request_id", "step") else request.rollouts
            if isinstance(value, list):
                target.ClearField(name)
                getattr(target, name).extend(value)
            else:
                setattr(target, name, value)
        return request

    wrong = {
        "request_id": changed(request_id=""),
        "step": changed(step=-1),
        "completion_ids": changed(completion_ids=b"12345"),
        "completion_lengths": changed(completion_lengths=[4, -1]),
        "prompts": changed(prompts=["p"]),
        "row_ids": changed(row_ids=[1, 1]),
        "columns": changed(columns=[]),
    }
    ids = np.asarray([1, 2, 2**30], "<i4").tobytes()
    async with service.serving(tmp_path, pool, tokenizer) as (stub, handler):
        for field, request in wrong.items():
            error = await fails(stub.ScoreRollouts(request, timeout=10))
            assert (error.code(), service.reason(error)) == (CODE.INVALID_ARGUMENT, "BAD_REQUEST")
            (violation,) = service.info_of(error, error_details_pb2.BadRequest()).field_violations
            assert violation.field == field
            assert violation.description == error.details()
        error = await fails(stub.ScoreRollouts(changed(completion_ids=ids), timeout=10))
        assert "got 1073741824 in row 1 at position 0" in error.details()
        good.tokenizer_fingerprint = "0123456789abcdef"
        error = await fails(stub.ScoreRollouts(good, timeout=10))
        assert error.code() == CODE.FAILED_PRECONDITION
        assert service.reason(error) == "TOKENIZER_MISMATCH"
        both = service.info_of(error, error_details_pb2.ErrorInfo()).metadata
        assert both == {"expected": tokenizer.fingerprint, "got": good.tokenizer_fingerprint}
        good.tokenizer_fingerprint = tokenizer.fingerprint
        await stub.ScoreRollouts(good, timeout=10)
        assert handler.rows_scored == 2


async def test_a_retry_is_not_scored_twice(tmp_path, tokenizer):
    """A repeated id joins the running call or gets the stored answer."""
    release = asyncio.Event()
    scorer = StubScorer(release.wait)
    rows = service.request(["a", "b"])
    async with service.serving(tmp_path, scorer, tokenizer) as (stub, handler):
        first, second = (stub.ScoreRollouts(rows, timeout=30) for _ in range(2))
        await service.happened(lambda: handler.calls_joined == 1)
        release.set()
        answers = await asyncio.gather(first, second)
        answers.append(await stub.ScoreRollouts(rows, timeout=30))
    assert answers[0] == answers[1] == answers[2]
    assert (len(scorer.batches), handler.rows_scored, handler.calls_joined) == (1, 2, 2)


async def test_a_caller_that_went_away_finds_its_answer(tmp_path, tokenizer):
    """A cancelled call is scored all the same, for the retry."""
    release = asyncio.Event()
    scorer = StubScorer(release.wait)
    async with service.serving(tmp_path, scorer, tokenizer) as (stub, _):
        call = stub.ScoreRollouts(service.request(["a"]), timeout=30)
        await service.happened(lambda: scorer.batches)
        call.cancel()
        release.set()
        answer = await stub.ScoreRollouts(service.request(["a"]), timeout=30)
    assert service.totals(answer.rewards).tolist() == [1]
    assert len(scorer.batches) == 1


async def test_an_id_is_not_used_for_other_rows(tmp_path, tokenizer):
    """Other rows under a known id never get its rewards."""
    async with service.serving(tmp_path, StubScorer(), tokenizer) as (stub, _):
        await stub.ScoreRollouts(service.request(["a"]), timeout=30)
        error = await fails(stub.ScoreRollouts(service.request(["b"]), timeout=30))
        split = service.request(["a"])
        split.rollouts.completion_lengths.append(0)
        with pytest.raises(grpc.aio.AioRpcError, match="was used"):
            await stub.ScoreRollouts(split, timeout=30)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert error.details() == "`request_id` must be new, 'call' was used."


CHANGED = {
    "completion": lambda rows: setattr(rows.rollouts, "completion_ids", b"\1\0\0\0"),
    "prompt": lambda rows: rows.rollouts.prompts.__setitem__(0, "another"),
    "prefix": lambda rows: rows.rollouts.completion_prefixes.append("<think>"),
    "column": lambda rows: rows.rollouts.columns[0].double_values.values.__setitem__(0, 9.0),
    "new column": lambda rows: rows.rollouts.columns.add(name="b").int64_values.values.append(1),
    "row id": lambda rows: rows.rollouts.row_ids.__setitem__(0, 7),
    "end": lambda rows: rows.rollouts.end_token_ids.append(3),
    "pad": lambda rows: setattr(rows.rollouts, "pad_token_id", 3),
    "group": lambda rows: rows.rollouts.group_ids.append(3),
    "step": lambda rows: setattr(rows, "step", 3),
    "mode": lambda rows: setattr(rows, "mode", 2),
    "functions": lambda rows: setattr(rows, "reward_fns_digest", "d1"),
}


@pytest.mark.parametrize("what", CHANGED)
async def test_whatever_decides_a_reward_is_part_of_a_retry(tmp_path, tokenizer, what):
    """The same id with anything else is refused, while the call runs and afterwards."""
    release = asyncio.Event()
    other = service.request(["a"])
    CHANGED[what](other)
    async with service.serving(tmp_path, StubScorer(release.wait), tokenizer) as (stub, handler):
        first = stub.ScoreRollouts(service.request(["a"]), timeout=30)
        await service.happened(lambda: handler._running)
        for _ in range(2):
            error = await fails(stub.ScoreRollouts(other, timeout=30))
            assert error.details() == "`request_id` must be new, 'call' was used."
            release.set()
            await first
        assert handler.calls_joined == 0


async def test_other_functions_are_refused_before_a_row_is_scored(tmp_path, tokenizer):
    """FAILED_PRECONDITION with a reason of its own; none, and the right ones, are let in."""
    scorer = StubScorer()
    async with service.serving(tmp_path, scorer, tokenizer) as (stub, _):
        error = await fails(stub.ScoreRollouts(with_digest("d0"), timeout=30))
        assert (error.code(), service.reason(error)) == (
            CODE.FAILED_PRECONDITION,
            "REWARD_FNS_CHANGED",
        )
        both = service.info_of(error, error_details_pb2.ErrorInfo()).metadata
        assert both == {"expected": "d1", "got": "d0"}
        assert not scorer.batches
        for digest in ("", "d1"):
            await stub.ScoreRollouts(with_digest(digest), timeout=30)


def with_digest(digest):
    """A call of somebody who counts on these functions."""
    made = service.request(["a"], request_id=f"call {digest}")
    made.reward_fns_digest = digest
    return made


async def test_callers_take_turns_by_their_names(tmp_path, tokenizer):
    """Two jobs have a process 0 each; those that send no name are told apart by process."""
    scorer = StubScorer()
    async with service.serving(tmp_path, scorer, tokenizer) as (stub, _):
        for number, caller in enumerate(("job a", "job b", "", "x" * 201)):
            made = service.request(["a"], request_id=str(number))
            made.caller = caller
            if len(caller) > 200:
                error = await fails(stub.ScoreRollouts(made, timeout=30))
                assert error.details() == "`caller` must have at most 200 characters, got 201."
            else:
                await stub.ScoreRollouts(made, timeout=30)
    assert [batch.caller for batch in scorer.batches] == ["job a", "job b", "0"]


async def test_answers_are_forgotten_when_they_grow_too_large(tmp_path, tokenizer):
    """Memory of answers is bounded: the oldest goes first."""
    scorer = StubScorer()
    async with service.serving(tmp_path, scorer, tokenizer, memo_bytes=10_000) as (stub, handler):
        for number in (*range(20), 19, 0):
            request = service.request(["a"] * 5, request_id=str(number))
            await stub.ScoreRollouts(request, timeout=30)
            assert 0 < handler.info().memo_bytes <= 10_000
    assert (len(scorer.batches), handler.calls_joined) == (21, 1)


async def test_a_failed_call_may_be_repeated(tmp_path, tokenizer):
    """Only answers are remembered; failures say nothing about their cause."""
    errors = [KeyError("secret"), None]

    async def act():
        if (error := errors.pop(0)) is not None:
            raise error

    async with service.serving(tmp_path, StubScorer(act), tokenizer) as (stub, _):
        error = await fails(stub.ScoreRollouts(service.request(["a"]), timeout=30))
        await stub.ScoreRollouts(service.request(["a"]), timeout=30)
    assert (error.code(), service.reason(error)) == (CODE.INTERNAL, "INTERNAL")
    assert "secret" not in error.details()


async def test_a_draining_server_takes_no_new_calls(tmp_path, tokenizer):
    """New calls are told to come again; what is known is still answered."""
    async with service.serving(tmp_path, StubScorer(), tokenizer) as (stub, handler):
        await stub.ScoreRollouts(service.request(["a"]), timeout=30)
        handler.draining = True
        await stub.ScoreRollouts(service.request(["a"]), timeout=30)
        new = service.request(["a"], request_id="new")
        error = await fails(stub.ScoreRollouts(new, timeout=30))
    assert (error.code(), service.reason(error)) == (CODE.UNAVAILABLE, "DRAINING")
    assert service.info_of(error, error_details_pb2.RetryInfo()).retry_delay.seconds == 1


async def test_deadline(tmp_path, tokenizer, pool):
    """A call that takes too long ends before the caller's deadline and says how far it came."""
    request = service.request(["a", "b", "c"], seconds=3.0)
    async with service.serving(tmp_path, pool, tokenizer) as (stub, _):
        error = await fails(stub.ScoreRollouts(request, timeout=1))
        assert error.code() == CODE.DEADLINE_EXCEEDED
        assert service.reason(error) == "DEADLINE_EXCEEDED"
    assert "3 of 3 rows" in error.details()


async def test_no_rows(tmp_path, tokenizer, pool):
    """A process that owns no rows gets an empty answer."""
    request = reward_pb2.ScoreRolloutsRequest(request_id="none", rollouts=types_pb2.RolloutBatch())
    async with service.serving(tmp_path, pool, tokenizer) as (stub, _):
        answer = await stub.ScoreRollouts(request, timeout=30)
    assert (answer.rewards.rewards, list(answer.rewards.statuses)) == (b"", [])
    assert list(answer.rewards.reward_fns) == ["faulty", "length", "slow_tail"]


async def test_large_messages(tmp_path, tokenizer):
    """Calls beyond gRPC's default of 4 MiB pass; those beyond the limit are refused."""
    async with service.serving(tmp_path, StubScorer(), tokenizer) as (stub, _):
        request = service.request([])
        request.rollouts.completion_ids = bytes(8 * 2**20)
        request.rollouts.completion_lengths.append(2 * 2**20)
        request.rollouts.prompts.append("p")
        request.rollouts.row_ids.append(1)
        request.rollouts.ClearField("columns")
        answer = await stub.ScoreRollouts(request, timeout=30)
        assert service.totals(answer.rewards).tolist() == [1]
        request.rollouts.prompts[0] = "p" * MAX_MESSAGE_BYTES
        error = await fails(stub.ScoreRollouts(request, timeout=30))
    assert error.code() == CODE.RESOURCE_EXHAUSTED


def scaled(options, factor):
    """Options with the times between pings multiplied."""
    times = ("keepalive_time_ms", "ping_interval_without_data_ms")
    return [(k, round(v * factor) if k.endswith(times) else v) for k, v in options]


async def test_long_calls_outlive_keepalive(tmp_path, tokenizer, pool):
    """A call lasts many pings at the ratio that is shipped; pings too often would end it."""
    # 0.1 s between pings where 30 s are shipped, and no pause after two pings without data.
    factor = 100 / KEEPALIVE_TIME_MS
    client = [*scaled(CLIENT_OPTIONS, factor), ("grpc.http2.max_pings_without_data", 0)]
    server = scaled(SERVER_OPTIONS, factor)
    request = service.request(["ab"], seconds=3.0)
    options = {"client_options": client, "server_options": server}
    async with service.serving(tmp_path, pool, tokenizer, **options) as (stub, _):
        answer = await stub.ScoreRollouts(request, timeout=60)
    assert service.totals(answer.rewards).tolist() == [2]
    never = StubScorer(asyncio.Event().wait)
    options["server_options"] = SERVER_OPTIONS
    async with service.serving(tmp_path, never, tokenizer, **options) as (stub, _):
        error = await fails(stub.ScoreRollouts(request, timeout=60))
    assert error.code() == CODE.UNAVAILABLE
    assert "ping" in error.details().lower()


@pytest.mark.parametrize("options", [CLIENT_OPTIONS, connection._OPTIONS])
def test_keepalive_fits_on_both_sides(options):
    """Callers of both hops ping no more often than servers allow, and wait for late answers."""
    client, server = dict(options), dict(SERVER_OPTIONS)
    assert client["grpc.keepalive_time_ms"] > MIN_PING_INTERVAL_MS
    assert client["grpc.keepalive_timeout_ms"] >= 5_000
    for name in ("min_ping_interval", "min_recv_ping_interval"):
        assert server[f"grpc.http2.{name}_without_data_ms"] == MIN_PING_INTERVAL_MS
