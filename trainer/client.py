# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The reward client: channel, deadline, retry. No JAX and no event loop.

Retries repeat the request id, so that a server that already scored the rows answers from memory.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
import uuid
from typing import TYPE_CHECKING, Any

import grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc

from trainer import codec
from trainer.config import MAX_MESSAGE_BYTES, RewardClientConfig
from trainer.credentials import ClientCredentials, explain, is_local
from trainer.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Unavailable,
    from_rpc_error,
    how_to_start,
    is_retryable,
    status_details,
)

if TYPE_CHECKING:
    from shardward.v1 import types_pb2

logger = logging.getLogger(__name__)

NOTICE_S = 10.0
_RECONNECT_S = 0.2
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Login nodes export http_proxy, which gRPC would use even for local addresses.
    ("grpc.enable_http_proxy", 0),
)


class RewardClient:
    """Sends local rollouts to the reward server of this process.

    Pass it to `ShardedGRPOLearner` as `reward_fns`. Safe to use from several threads.

    Example:
        >>> client = RewardClient("unix:/tmp/reward.sock")  # doctest: +SKIP
        >>> client.score(rollouts).totals  # doctest: +SKIP
    """

    __name__ = "reward_client"  # Tunix names its reward functions by this in messages.

    def __init__(self, endpoint: str, **settings: Any) -> None:
        """Takes the endpoint and the other fields of `RewardClientConfig`.

        Raises:
            ValueError: a setting is out of range, or a file of it can't be used.
        """
        self.config = RewardClientConfig(endpoint=endpoint, **settings)
        self._credentials = ClientCredentials.load(
            tls_ca=self.config.tls_ca,
            tls_cert=self.config.tls_cert,
            tls_key=self.config.tls_key,
            token_file=self.config.token_file,
        )
        self.process_index = 0
        self.fingerprint = ""
        self._run = uuid.uuid4().hex[:12]
        self._calls = 0
        self._channel: grpc.Channel | None = None

    def _stub(self) -> reward_pb2_grpc.RewardServiceStub:
        # The channel is made late: a client may be built before JAX forks or initialises.
        if self._channel is None:
            self._channel = self._open()
        return reward_pb2_grpc.RewardServiceStub(self._channel)

    def _open(self) -> grpc.Channel:
        endpoint, tls = self.config.endpoint, self._credentials.for_channel()
        if tls is not None:
            return grpc.secure_channel(endpoint, tls, _CHANNEL_OPTIONS)
        if self._credentials.token and not is_local(endpoint):
            logger.warning("token is sent without TLS endpoint=%s: pass tls_ca", endpoint)
        return grpc.insecure_channel(endpoint, _CHANNEL_OPTIONS)

    def connect(self, *, fingerprint: str = "") -> types_pb2.ServiceInfo:
        """Waits for the server and checks that it decodes with the same tokenizer.

        Args:
            fingerprint: of the trainer's tokenizer; "" checks nothing.

        Returns:
            The server's functions and limits.

        Raises:
            Unavailable: no server within connect_timeout_s.
            InvalidRequest: it has another tokenizer or token.
        """
        endpoint = self.config.endpoint
        info = self._first_info()
        if fingerprint and info.tokenizer_fingerprint and info.tokenizer_fingerprint != fingerprint:
            raise InvalidRequest(
                f"the tokenizer of the reward server at {endpoint}"
                f" ({info.tokenizer_fingerprint[:12]}) must be the trainer's ({fingerprint[:12]})."
                " Start it with the same --tokenizer.",
                reason="TOKENIZER_MISMATCH",
            )
        if not fingerprint:
            logger.warning("tokenizer not checked endpoint=%s: it shows no vocabulary", endpoint)
        self.fingerprint = fingerprint
        return info

    def _first_info(self) -> types_pb2.ServiceInfo:
        """Asks until the server answers; a handshake that can't succeed is not tried again."""
        endpoint, timeout = self.config.endpoint, self.config.connect_timeout_s
        deadline = time.monotonic() + timeout
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                # Waiting in gRPC would end without the cause.
                response = self._stub().GetInfo(
                    reward_pb2.RewardServiceGetInfoRequest(),
                    timeout=left,
                    metadata=self._credentials.metadata,
                )
            except grpc.RpcError as error:
                code, details = error.code(), error.details() or ""
                waiting = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if code not in waiting or explain(details, endpoint):
                    raise from_rpc_error(
                        error, endpoint=endpoint, request_id="", row_ids=()
                    ) from error
                if left <= _RECONNECT_S or code == grpc.StatusCode.DEADLINE_EXCEEDED:
                    remedy = self._credentials.guess(details) or how_to_start(endpoint)
                    raise Unavailable(
                        f"no reward server answered at {endpoint} within {timeout:g} s. {remedy}",
                        reason="UNAVAILABLE",
                    ) from error
                time.sleep(_RECONNECT_S)
            else:
                info: types_pb2.ServiceInfo = response.info
                return info

    def submit(self, rollouts: codec.LocalRollouts) -> RewardHandle:
        """Sends rows and returns at once; the rewards are fetched with `RewardHandle.result`.

        Raises:
            ValueError: a column can't be sent.
        """
        self._calls += 1
        deadline = time.monotonic() + self.config.timeout_s
        calls = []
        lengths = codec.completion_lengths(rollouts.completion_ids, rollouts.end_token_ids)
        for part, rows in enumerate(codec.split_rows(rollouts, lengths, self.config.call_bytes)):
            request = codec.encode_request(
                rollouts,
                rows,
                lengths,
                request_id=f"{self._run}/{rollouts.step}/{self.process_index}/{self._calls}.{part}",
                process_index=self.process_index,
                fingerprint=self.fingerprint,
            )
            metadata = self._credentials.metadata
            calls.append(_Call(self._stub(), request, self.config.endpoint, deadline, metadata))
        return RewardHandle(calls)

    def score(self, rollouts: codec.LocalRollouts) -> codec.RowRewards | None:
        """Sends rows and waits for their rewards; see `RewardHandle.result`."""
        return self.submit(rollouts).result()

    def close(self) -> None:
        """Closes the channel; calls under way fail."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class RewardHandle:
    """Rewards that are on their way."""

    def __init__(self, calls: list[_Call]) -> None:
        """Takes the calls of a batch, in row order."""
        self._calls = calls

    def result(self) -> codec.RowRewards | None:
        """Waits for all rows, at most the client's timeout_s since they were sent.

        Returns:
            The rewards in row order, or None if no row was sent.

        Raises:
            Unavailable: the server could not be reached until the deadline.
            DeadlineExceeded: the rewards did not come in time.
            InvalidRequest: the server refused the request.
            ScoringFailed: the answer can't be used.
        """
        parts = [call.result() for call in self._calls]
        return codec.concatenate(parts) if parts else None


@dataclasses.dataclass(slots=True)
class _Call:
    """One request and its retries."""

    stub: reward_pb2_grpc.RewardServiceStub
    request: reward_pb2.ScoreRolloutsRequest
    endpoint: str
    deadline: float
    metadata: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)
    future: Any = None

    def __post_init__(self) -> None:
        self._send()

    def _send(self) -> None:
        left = max(self.deadline - time.monotonic(), 0.001)
        self.future = self.stub.ScoreRollouts.future(
            self.request, timeout=left, metadata=self.metadata
        )

    def result(self) -> codec.RowRewards:
        """Waits for the answer; sends the request again where that can help."""
        started, backoff_s = time.monotonic(), 0.1
        while True:
            try:
                response = self.future.result(timeout=NOTICE_S)
            except grpc.FutureTimeoutError:
                self._notice("waiting for rewards", started)
            except grpc.RpcError as error:
                delay = status_details(error).retry_after_s or backoff_s * random.uniform(0.5, 1.5)  # noqa: S311
                if not is_retryable(error) or time.monotonic() + delay >= self.deadline:
                    raise self._error(error) from error
                self._notice(f"retrying after {error.code().name}", started)
                time.sleep(delay)
                backoff_s = min(backoff_s * 2, 5.0)
                self._send()
            except grpc.FutureCancelledError as error:
                raise DeadlineExceeded(
                    f"the call to {self.endpoint} was cancelled.",
                    reason="CANCELLED",
                    request_id=self.request.request_id,
                ) from error
            else:
                return codec.decode_response(self.request, response)

    def _error(self, error: grpc.RpcError) -> Exception:
        return from_rpc_error(
            error,
            endpoint=self.endpoint,
            request_id=self.request.request_id,
            row_ids=self.request.rollouts.row_ids,
        )

    def _notice(self, event: str, started: float) -> None:
        rows = self.request.rollouts.row_ids
        logger.warning(
            "%s endpoint=%s request_id=%s rows=%s..%s waited_s=%.0f left_s=%.0f",
            event,
            self.endpoint,
            self.request.request_id,
            rows[0],
            rows[-1],
            time.monotonic() - started,
            self.deadline - time.monotonic(),
        )
