# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The services: messages in, handler, messages out."""

from __future__ import annotations

from typing import Any

import grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server import log, status
from reward_server.handler import Handler
from reward_server.messages import MAX_REQUEST_ID_CHARACTERS

# What is left of the caller's deadline for the way back.
REPLY_MARGIN_S = 0.2
DEFAULT_TIMEOUT_S = 600.0


def _time_left_s(context: grpc.aio.ServicerContext[Any, Any]) -> float:
    left = context.time_remaining()
    return DEFAULT_TIMEOUT_S if left is None else max(left - REPLY_MARGIN_S, 0.01)


async def _score(
    handler: Handler,
    request: reward_pb2.ScoreRolloutsRequest | scoring_pb2.ScoreRequest,
    context: grpc.aio.ServicerContext[Any, Any],
    caller: str,
) -> types_pb2.RewardBatch:
    """Scores the rows of either service's request, or ends the call with a status."""
    log.request_id.set(request.request_id[:MAX_REQUEST_ID_CHARACTERS])
    try:
        return await handler.score(
            request.request_id,
            request.rollouts,
            step=request.step,
            mode=request.mode,
            fingerprint=request.tokenizer_fingerprint,
            reward_fns_digest=request.reward_fns_digest,
            timeout_s=_time_left_s(context),
            caller=caller,
        )
    except Exception as error:  # noqa: BLE001 - the boundary: becomes a status
        handler.count_lost(error, len(request.rollouts.completion_lengths))
        await status.abort(context, error, caller=caller)


class RewardService(reward_pb2_grpc.RewardServiceServicer):
    """`shardward.v1.RewardService`, for trainers."""

    def __init__(self, handler: Handler) -> None:
        """Takes the handler of the server."""
        self._handler = handler

    async def ScoreRollouts(  # noqa: N802 - named by the contract
        self,
        request: reward_pb2.ScoreRolloutsRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> reward_pb2.ScoreRolloutsResponse:
        """Scores the rows of a training process."""
        caller = request.caller or str(request.process_index)
        rewards = await _score(self._handler, request, context, caller)
        return reward_pb2.ScoreRolloutsResponse(
            request_id=request.request_id, rewards=rewards, row_ids=request.rollouts.row_ids
        )

    async def GetInfo(  # noqa: N802
        self,
        request: reward_pb2.RewardServiceGetInfoRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002
    ) -> reward_pb2.RewardServiceGetInfoResponse:
        """Says what this server is."""
        return reward_pb2.RewardServiceGetInfoResponse(info=self._handler.info())


class ScoringService(scoring_pb2_grpc.ScoringServiceServicer):
    """`shardward.v1.ScoringService`, for reward servers."""

    def __init__(self, handler: Handler) -> None:
        """Takes the handler of the worker."""
        self._handler = handler

    async def Score(  # noqa: N802
        self, request: scoring_pb2.ScoreRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> scoring_pb2.ScoreResponse:
        """Scores rows for a reward server."""
        rewards = await _score(self._handler, request, context, request.caller)
        return scoring_pb2.ScoreResponse(
            request_id=request.request_id, rewards=rewards, row_ids=request.rollouts.row_ids
        )

    async def GetInfo(  # noqa: N802
        self,
        request: scoring_pb2.ScoringServiceGetInfoRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002
    ) -> scoring_pb2.ScoringServiceGetInfoResponse:
        """Says what this worker is."""
        return scoring_pb2.ScoringServiceGetInfoResponse(info=self._handler.info())
