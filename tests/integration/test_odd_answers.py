# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers that answer what they should not: no wrong reward, no traceback, no hurry."""

from __future__ import annotations

import contextlib
from concurrent import futures

import grpc
import numpy as np
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from shardward.v1 import reward_pb2, scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server.batch import RowStatus, WorkersUnavailable
from reward_server.router import WorkerRouter
from tests.integration import service
from trainer import RewardClient, RewardError
from trainer.codec import LocalRollouts

ROWS = 4
TEXT = "no\n\x1b[2J" + "x" * 3000
INFO = types_pb2.ServiceInfo(
    reward_fns=[types_pb2.RewardFnInfo(name="f", weight=1.0, timeout_s=1.0, all_columns=True)],
    slots=1,
    max_message_bytes=2**20,
)


@contextlib.contextmanager
def serving(service_name, **methods):
    """A gRPC server of hand-made methods; gives its address.

    Each is a function of request and context, with the type of the request.
    """
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            call, request.FromString, lambda answer: answer.SerializeToString()
        )
        for name, (call, request) in methods.items()
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(f"shardward.v1.{service_name}", handlers)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def packed(*details):
    """A status that goes with RESOURCE_EXHAUSTED."""
    return status_pb2.Status(code=8, message=TEXT, details=details).SerializeToString()


def after(**delay):
    """Details that say when to come again."""
    info = any_pb2.Any()
    info.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(**delay)))
    return packed(info)


@pytest.mark.parametrize(
    ("details", "comes_again"),
    [
        (b"\xff\xfe garbage", False),
        (packed(any_pb2.Any(type_url="x/google.rpc.RetryInfo", value=b"\xff\xff")), False),
        (after(seconds=2**62), False),
        (after(seconds=0), True),
        (after(seconds=-5), True),
        (after(nanos=-(2**31)), True),
    ],
)
def test_details_of_a_status_can_be_anything(details, comes_again):
    """The error is one of ours, on one line and bounded; a server can't make a client hurry."""
    calls = []

    def refuse(request, context):
        calls.append(request.request_id)
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TEXT)

    rows = LocalRollouts(
        row_ids=np.arange(ROWS),
        group_ids=np.zeros(ROWS, np.int64),
        prompts=["p"] * ROWS,
        completion_ids=np.ones((ROWS, 3), np.int32),
        end_token_ids=[0],
        pad_token_id=0,
    )
    methods = {
        "GetInfo": (
            lambda _request, _context: reward_pb2.RewardServiceGetInfoResponse(info=INFO),
            reward_pb2.RewardServiceGetInfoRequest,
        ),
        "ScoreRollouts": (refuse, reward_pb2.ScoreRolloutsRequest),
    }
    with serving("RewardService", **methods) as address:
        client = RewardClient(address, timeout_s=2)
        with contextlib.closing(client), pytest.raises(RewardError) as raised:
            client.score(rows)
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 2000
    assert 1 < len(calls) < 30 if comes_again else len(calls) == 1


def one_row_more(request, names):
    """Rewards of more rows than were sent."""
    rows = len(request.rollouts.row_ids) + 1
    rewards = types_pb2.RewardBatch(
        reward_fns=names,
        rewards=np.ones((rows, len(names)), "<f4").tobytes(),
        totals=np.ones(rows, "<f4").tobytes(),
        statuses=[RowStatus.OK] * rows,
        timings=types_pb2.Timings(score_s=[0.0] * len(names)),
    )
    ids = request.rollouts.row_ids
    return scoring_pb2.ScoreResponse(request_id=request.request_id, rewards=rewards, row_ids=ids)


@contextlib.asynccontextmanager
async def routing(spec, tokenizer, *, joined):
    """A started router, once so many workers have joined."""
    running = WorkerRouter(spec, fingerprint=tokenizer.fingerprint)
    try:
        await running.start()
        await service.happened(lambda: running.workers == joined)
        yield running
    finally:
        await running.close()


async def test_rows_of_a_worker_that_answers_nonsense_go_to_another(tmp_path, files, tokenizer):
    """They get the rewards of the other; alone it ends the call at its deadline, and is named."""
    batch = service.batch(["x" * (1 + row % 7) for row in range(40)], tokenizer, seconds=0.02)
    flags = ("--listen", f"unix:{tmp_path}/w", *service.files(files), "--slots", 1)
    with service.command("worker", *flags) as started:
        good = started.ready().address
        with grpc.insecure_channel(good) as channel:
            stub = scoring_pb2_grpc.ScoringServiceStub(channel)
            info = stub.GetInfo(scoring_pb2.ScoringServiceGetInfoRequest(), timeout=10)
        names, calls = [fn.name for fn in info.info.reward_fns], []

        def score(request, _context):
            calls.append(request)
            return one_row_more(request, names)

        methods = {
            "GetInfo": (lambda _request, _context: info, scoring_pb2.ScoringServiceGetInfoRequest),
            "Score": (score, scoring_pb2.ScoreRequest),
        }
        with serving("ScoringService", **methods) as bad:
            async with routing(f"{bad},{good}", tokenizer, joined=2) as running:
                scores = await running.score(batch, timeout_s=60)
            assert calls
            assert (scores.statuses == RowStatus.OK).all()
            assert scores.rewards[:, 1].tolist() == [1 + row % 7 for row in range(40)]
            async with routing(bad, tokenizer, joined=1) as running:
                with pytest.raises(WorkersUnavailable, match="answered what can't be used: `stat"):
                    await running.score(batch, timeout_s=3)
