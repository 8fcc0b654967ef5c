# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to a running server: the right status, and good calls are scored afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import time

import grpc
import hypothesis
import numpy as np
import psutil
import pytest
from hypothesis import strategies as st
from shardward.v1 import reward_pb2, types_pb2

from reward_server.batch import RowStatus
from reward_server.channel import MAX_MESSAGE_BYTES
from tests.integration import service

CODE = grpc.StatusCode
METHOD = "/shardward.v1.RewardService/ScoreRollouts"
REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:length"
probe = {{ completion = "x" }}
"""
# Codes that our code gives, always with an ErrorInfo; gRPC's own are UNKNOWN for what is no
# message, and RESOURCE_EXHAUSTED for what is too long.
OURS = {
    CODE.INVALID_ARGUMENT,
    CODE.FAILED_PRECONDITION,
    CODE.RESOURCE_EXHAUSTED,
    CODE.DEADLINE_EXCEEDED,
}
MIB = 2**20
# What the memory of a server may grow by beyond what one good call takes.
GROWTH_BYTES = 300 * MIB


class Target:
    """A running server, and a channel on which any bytes can be sent."""

    def __init__(self, command, channel):
        """Takes a command that is ready."""
        self.command = command
        self._call = channel.unary_unary(METHOD)
        self._process = psutil.Process(command.process.pid)
        self._good = 0

    def send(self, data, *, timeout=120):
        """Sends bytes; returns the answer, or the error."""
        try:
            answer = self._call(data, timeout=timeout)
        except grpc.RpcError as error:
            return error
        return reward_pb2.ScoreRolloutsResponse.FromString(answer)

    def check(self):
        """Scores a good call."""
        self._good += 1
        request = service.request(["ab", "c", ""], request_id=f"good-{self._good}")
        answer = self.send(request.SerializeToString())
        assert isinstance(answer, reward_pb2.ScoreRolloutsResponse), answer
        assert service.totals(answer.rewards).tolist() == [2, 1, 0]

    @property
    def rss_bytes(self):
        """Memory of the server itself."""
        return self._process.memory_info().rss


@contextlib.contextmanager
def running(folder):
    """A server of one slot that has answered."""
    files = service.write_files(folder, rewards=REWARDS)
    path = f"unix:{folder}/s"
    options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
    with (
        service.command(
            "serve", "--listen", path, *service.files(files), "--slots", "1"
        ) as command,
        grpc.insecure_channel(path, options) as channel,
    ):
        target = Target(command.ready(), channel)
        target.check()
        yield target
        target.check()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A server for all tests of this file; it scores a good call at the end."""
    with running(tmp_path_factory.mktemp("target")) as target:
        yield target


def changed(*, top=None, **fields):
    """A good request with other fields: lists and bytes of the rows, plain ones on top."""
    request = service.request(["ab", "c"], request_id=f"bad-{time.monotonic_ns()}")
    for name, value in (top or {}).items():
        setattr(request, name, value)
    for name, value in fields.items():
        if isinstance(value, list):
            request.rollouts.ClearField(name)
            getattr(request.rollouts, name).extend(value)
        else:
            setattr(request.rollouts, name, value)
    return request


def ids(*values):
    """Ids on the wire."""
    return np.asarray(values, "<i4").tobytes()


def json_column(text):
    """A column of two documents."""
    return [types_pb2.Column(name="j", json_values={"values": [text, "1"]})]


DEEP = "[" * 100 + "]" * 100
BAD = {
    "sum of lengths": (changed(completion_lengths=[2, 2]), "must have 4 * sum"),
    "negative length": (changed(completion_lengths=[4, -1]), "must be >= 0, got -1 in row 1"),
    "lengths that overflow": (changed(completion_lengths=[2**31 - 1] * 2), "must have 4 * sum"),
    "id too large": (changed(completion_ids=ids(1, 2, 2**24)), "in row 1 at position 0"),
    "negative id": (changed(completion_ids=ids(1, -2, 3)), "got -2 in row 0 at position 1"),
    "odd bytes": (changed(completion_ids=b"12345"), "must have 4 * sum"),
    "row ids twice": (changed(row_ids=[7, 7]), "must be unique, got 7 twice"),
    "too few row ids": (changed(row_ids=[7]), "must have one value per row (2), got 1"),
    "too few prompts": (changed(prompts=["p"]), "must have one value per row (2), got 1"),
    "too many groups": (changed(group_ids=[1, 2, 3]), "must have one value per row (2), got 3"),
    "no request id": (changed(top={"request_id": ""}), "must have 1 to 200 characters"),
    "long request id": (changed(top={"request_id": "x" * 201}), "must have 1 to 200 characters"),
    "negative step": (changed(top={"step": -5}), "`step` must be >= 0, got -5"),
    "unknown mode": (changed(top={"mode": 77}), "`mode` must be one of"),
    "many end ids": (changed(end_token_ids=list(range(300))), "at most 256 ids, got 300"),
    "no values": (changed(columns=[types_pb2.Column(name="c")]), "must have values"),
    "short column": (
        changed(columns=[types_pb2.Column(name="c", int64_values={"values": [1]})]),
        "must have one value per row (2), got 1",
    ),
    "column twice": (
        changed(columns=[types_pb2.Column(name="c", int64_values={"values": [1, 2]})] * 2),
        "must have unique names, got 'c'",
    ),
    "no JSON": (changed(columns=json_column("{")), "must hold JSON documents"),
    "deep JSON": (changed(columns=json_column(DEEP)), "nested deeper than 64 levels"),
    "very deep JSON": (changed(columns=json_column("[" * 10**5)), "JSON documents"),
    "huge number": (changed(columns=json_column("1" * 10**5)), "must hold JSON documents"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(target, name):
    """Each mistake is INVALID_ARGUMENT, and the message says what was wrong where."""
    request, text = BAD[name]
    error = target.send(request.SerializeToString())
    assert isinstance(error, grpc.RpcError), error
    assert (error.code(), service.reason(error)) == (CODE.INVALID_ARGUMENT, "BAD_REQUEST")
    assert text in error.details()
    target.check()


def test_another_tokenizer(target):
    """Ids of another vocabulary are not decoded."""
    request = changed(top={"tokenizer_fingerprint": "0" * 64})
    error = target.send(request.SerializeToString())
    assert error.code() == CODE.FAILED_PRECONDITION
    assert service.reason(error) == "TOKENIZER_MISMATCH"


def test_json_that_is_just_allowed(target):
    """Documents of 64 levels reach the child and come to no harm on the way."""
    request = changed(columns=json_column("[" * 64 + "]" * 64))
    answer = target.send(request.SerializeToString())
    assert list(answer.rewards.statuses) == [RowStatus.OK] * 2


def test_no_rows_and_a_million(target):
    """Nothing is a valid call; so are a million rows of one token each."""
    answer = target.send(changed(completion_ids=b"", completion_lengths=[], prompts=[], columns=[],
                                 row_ids=[]).SerializeToString())  # fmt: skip
    assert list(answer.rewards.statuses) == []
    rows = 10**6
    many = changed(
        completion_ids=np.full(rows, 10, "<i4").tobytes(),
        completion_lengths=[1] * rows,
        prompts=[""] * rows,
        columns=[],
        row_ids=list(range(rows)),
    )
    answer = target.send(many.SerializeToString(), timeout=250)
    assert isinstance(answer, reward_pb2.ScoreRolloutsResponse), answer
    assert (service.totals(answer.rewards) == 1).all()
    assert len(answer.rewards.statuses) == rows
    target.check()


def test_too_long_is_final(target):
    """A message over the limit is refused by gRPC with the limit, and without a delay."""
    target.check()
    before = target.rss_bytes
    for _ in range(3):
        error = target.send(b"x" * (MAX_MESSAGE_BYTES + MIB))
        assert error.code() == CODE.RESOURCE_EXHAUSTED
        assert str(MAX_MESSAGE_BYTES) in error.details()
        assert service.rpc_status.from_call(error) is None
    target.check()
    assert target.rss_bytes - before < GROWTH_BYTES


def test_bytes_that_are_no_message(target):
    """Noise is refused, and the connection lives on."""
    rng = random.Random(0)
    for size in (1, 10, 1000, MIB):
        error = target.send(rng.randbytes(size))
        assert isinstance(error, grpc.RpcError)
        assert error.code() in (CODE.UNKNOWN, CODE.INVALID_ARGUMENT)
    target.check()


NUMBERS = st.one_of(
    st.integers(-3, 5), st.sampled_from([102, 103, 2**31 - 1, -(2**31)]), st.integers(0, 102)
)
TEXTS = st.text(max_size=20)
DOCUMENTS = st.one_of(
    TEXTS, st.sampled_from(["1", "[]", '"\\ud800"', "NaN", "-1e999", "null", '{"a": [1]}', DEEP])
)


def _values(kind, elements):
    return st.lists(elements, max_size=5).map(lambda values: {kind: {"values": values}})


COLUMNS = st.builds(
    lambda name, values: types_pb2.Column(name=name, **values),
    st.one_of(st.sampled_from(["prompts", "completions", "mode", "seconds", ""]), TEXTS),
    st.one_of(
        st.just({}),
        _values("string_values", TEXTS),
        _values("json_values", DOCUMENTS),
        _values("int64_values", st.integers(-(2**63), 2**63 - 1)),
        _values("double_values", st.floats()),
        _values("bool_values", st.booleans()),
    ),
)
INT32 = st.integers(-(2**31), 2**31 - 1)
ROLLOUTS = st.builds(
    types_pb2.RolloutBatch,
    completion_ids=st.lists(NUMBERS, max_size=12).map(lambda values: ids(*values)),
    completion_lengths=st.lists(NUMBERS, max_size=5),
    prompts=st.lists(TEXTS, max_size=5),
    prompt_ids=st.one_of(st.just(b""), st.binary(max_size=12)),
    prompt_lengths=st.lists(NUMBERS, max_size=5),
    completion_prefixes=st.lists(TEXTS, max_size=3),
    end_token_ids=st.lists(NUMBERS, max_size=3),
    pad_token_id=st.one_of(st.none(), INT32),
    group_ids=st.lists(NUMBERS, max_size=3),
    row_ids=st.lists(NUMBERS, max_size=5),
    columns=st.lists(COLUMNS, max_size=3),
)


@st.composite
def near_misses(draw):
    """A good request with one to three fields from anywhere, which may pass or not."""
    rows = draw(st.lists(st.text("abc", max_size=4), max_size=5))
    request_id = draw(st.one_of(st.just("known"), st.uuids().map(str)))
    request = service.request(rows, request_id=request_id)
    other = draw(ROLLOUTS)
    names = [field.name for field in types_pb2.RolloutBatch.DESCRIPTOR.fields]
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        request.rollouts.ClearField(name)
        value = getattr(other, name)
        if isinstance(value, bytes | int):
            setattr(request.rollouts, name, value)
        else:
            getattr(request.rollouts, name).extend(value)
    request.step = draw(st.sampled_from([0, 1, -1, 2**62]))
    request.mode = draw(st.integers(-1, 4))
    return request.SerializeToString()


@st.composite
def mutations(draw):
    """The bytes of a request with some of them changed, cut off or doubled."""
    data = bytearray(draw(near_misses()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "double"]))
        if kind == "set" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 64))]
    return bytes(data)


CALLS = st.one_of(near_misses(), mutations(), st.binary(max_size=200))


def fuzz(target, *, examples, seconds):
    """Sends generated calls until either runs out; returns how often each code came."""
    codes: dict[str, int] = {}
    end = time.monotonic() + seconds
    seeds = random.Random(int(os.environ.get("FUZZ_SEED", "0")))

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(CALLS)
    def sends(data):
        if time.monotonic() > end:
            return
        answer = target.send(data, timeout=60)
        assert target.command.process.poll() is None
        if isinstance(answer, reward_pb2.ScoreRolloutsResponse):
            request = reward_pb2.ScoreRolloutsRequest.FromString(data)
            rows = len(request.rollouts.completion_lengths)
            assert list(answer.row_ids) == list(request.rollouts.row_ids)
            assert len(answer.rewards.statuses) == rows
            failed = {error.row_index for error in answer.rewards.errors}
            for row, (status, total) in enumerate(
                zip(answer.rewards.statuses, service.totals(answer.rewards), strict=True)
            ):
                assert (status == RowStatus.OK) == np.isfinite(total) == (row not in failed)
            code = "OK"
        else:
            code = answer.code().name
            if answer.code() in OURS:
                service.reason(answer)
            else:
                # Never INTERNAL: that would be an exception nobody thought of.
                assert answer.code() == CODE.UNKNOWN
                assert "DecodeError" in answer.details()
        codes[code] = codes.get(code, 0) + 1

    while time.monotonic() < end:
        hypothesis.seed(seeds.randrange(2**32))(sends)()
        target.check()
    return codes


def test_mutated_messages(target):
    """Calls that are nearly good never break the server, whatever it answers."""
    before = target.rss_bytes
    codes = fuzz(target, examples=500, seconds=15)
    assert codes.keys() >= {"OK", "INVALID_ARGUMENT", "UNKNOWN"}
    assert target.rss_bytes - before < GROWTH_BYTES
    assert "call failed" not in target.command.log


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif("FUZZ_S" not in os.environ, reason="make fuzz sets FUZZ_S, its seconds")
def test_mutated_messages_for_long(target):
    """The same with other calls, for as long as FUZZ_S says."""
    before = target.rss_bytes
    codes = fuzz(target, examples=2000, seconds=float(os.environ["FUZZ_S"]))
    grown = target.rss_bytes - before
    print(f"codes={codes} grown_mib={grown / MIB:.1f}")
    assert grown < GROWTH_BYTES
    assert "call failed" not in target.command.log
