# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The reward client: channel, tokenizer check, batches in calls. No JAX and no event loop."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from shardward.changes import changes
from shardward.v1 import reward_pb2, types_pb2

from trainer import codec, text_rewards
from trainer.calls import Call, countdown
from trainer.config import RewardClientConfig
from trainer.connection import Connection
from trainer.credentials import ClientCredentials
from trainer.errors import REWARD_FNS_CHANGED, InvalidRequest, RewardError, ScoringFailed

logger = logging.getLogger(__name__)

# For a server that has just refused a call.
_ASK_TIMEOUT_S = 5.0


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
        self._caller = f"{socket.gethostname()}/{os.getpid()}/{self._run}"
        self._info = types_pb2.ServiceInfo()
        self._calls = itertools.count(1)
        self._lock = threading.Lock()
        self._connection = Connection(endpoint, self._credentials)

    def connect(self, *, fingerprint: str = "") -> types_pb2.ServiceInfo:
        """Waits for the server and checks that it decodes with the same tokenizer.

        From then on rows are scored with the functions that it has now, or not at all.

        Args:
            fingerprint: of the trainer's tokenizer; "" checks nothing.

        Returns:
            The server's functions and limits.

        Raises:
            Unavailable: no server within connect_timeout_s, or another user's.
            InvalidRequest: it has another tokenizer or token, or other functions than when this
                client first asked.
        """
        endpoint = self.config.endpoint
        info = self._ask(self.config.connect_timeout_s)
        if fingerprint and info.tokenizer_fingerprint and info.tokenizer_fingerprint != fingerprint:
            raise InvalidRequest(
                f"the tokenizer of the reward server at {endpoint}"
                f" ({info.tokenizer_fingerprint[:12]}) must be the trainer's ({fingerprint[:12]})."
                " Start it with the trainer's tokenizer files;"
                " `grpo-train --recipe NAME --print-server-flags` names those of a recipe.",
                reason="TOKENIZER_MISMATCH",
            )
        began = self._info.reward_fns_digest
        if began and info.reward_fns_digest != began:
            raise self._other_functions(info, self._info)
        if not fingerprint:
            logger.warning("tokenizer not checked endpoint=%s: it shows no vocabulary", endpoint)
        self.fingerprint, self._info = fingerprint, info
        return info

    def _ask(self, timeout_s: float) -> types_pb2.ServiceInfo:
        call = Call(
            connection=self._connection,
            method="GetInfo",
            request=reward_pb2.RewardServiceGetInfoRequest(),
            timeout_s=timeout_s,
        )
        response: reward_pb2.RewardServiceGetInfoResponse = call.result()
        return response.info

    def _changed(self, error: RewardError, began: types_pb2.ServiceInfo) -> RewardError:
        """Says which of the functions that a run began with are others now."""
        try:
            now = self._ask(_ASK_TIMEOUT_S)
        except RewardError:
            return error  # the server went away
        return self._other_functions(now, began, error.request_id)

    def _other_functions(
        self, now: types_pb2.ServiceInfo, began: types_pb2.ServiceInfo, request_id: str = ""
    ) -> RewardError:
        what = changes(now.reward_fns, began.reward_fns)
        return InvalidRequest(
            f"the reward server at {self.config.endpoint} has other reward functions than this run"
            f" began with: {what or 'they were others a moment ago'}. Start it with the old ones,"
            " or begin a new run.",
            reason=REWARD_FNS_CHANGED,
            request_id=request_id,
        )

    def submit(self, rollouts: codec.LocalRollouts) -> RewardHandle:
        """Sends rows and returns at once; the rewards are fetched with `RewardHandle.result`.

        Raises:
            ValueError: a column can't be sent.
            Unavailable: another user's socket lies at the endpoint.
        """
        batch = f"{self._run}/{rollouts.step}/{self.process_index}/{next(self._calls)}"
        deadline = time.monotonic() + self.config.timeout_s
        connection, began = self._connection, self._info
        calls = []
        lengths = codec.completion_lengths(rollouts.completion_ids, rollouts.end_token_ids)
        columns = codec.encode_columns(rollouts, _columns_of(self._info))
        # Before the first call goes out: an error must not leave half of them behind.
        runs = list(codec.split_rows(rollouts, lengths, columns, self.config.call_bytes))
        for part, rows in enumerate(runs):
            request = codec.encode_request(
                rollouts,
                rows,
                lengths,
                columns,
                request_id=f"{batch}.{part}",
                process_index=self.process_index,
                fingerprint=self.fingerprint,
                reward_fns_digest=began.reward_fns_digest,
                caller=self._caller,
            )
            calls.append(
                Call(
                    connection=connection,
                    method="ScoreRollouts",
                    request=request,
                    timeout_s=deadline - time.monotonic(),
                    request_id=request.request_id,
                    row_ids=request.rollouts.row_ids,
                )
            )
        return RewardHandle(calls, began, lambda error: self._changed(error, began))

    def score(self, rollouts: codec.LocalRollouts) -> codec.RowRewards | None:
        """Sends rows and waits for their rewards; see `RewardHandle.result`."""
        return self.submit(rollouts).result()

    def as_reward_fn(
        self, tokenizer: Any, *, failed_value: float | None = None
    ) -> text_rewards.RewardFn:
        """Makes a reward function for learners of Tunix that run in one process.

        The agentic learners take it as `reward_fns`, and so does Tunix's own GRPO learner.

        Args:
            tokenizer: of transformers, the reward server's; texts travel as its ids.
            failed_value: reward of rows that have none. Default: such rows raise ScoringFailed.

        Raises:
            Unavailable: no server within connect_timeout_s.
            InvalidRequest: it has another tokenizer or token.
        """
        self.connect(fingerprint=codec.tokenizer_fingerprint(tokenizer))
        return text_rewards.reward_fn(self, tokenizer, failed_value=failed_value)

    def close(self) -> None:
        """Closes the channel; calls under way end at once with an error."""
        with self._lock:
            before = self._connection
            self._connection = Connection(before.endpoint, self._credentials)
        before.close()


def _columns_of(info: types_pb2.ServiceInfo) -> frozenset[str] | None:
    """Columns that functions take, or None if one takes all, or that is not known."""
    known = [fn.HasField("all_columns") and not fn.all_columns for fn in info.reward_fns]
    if not known or not all(known):
        return None
    return frozenset(name for fn in info.reward_fns for name in fn.columns)


class RewardHandle:
    """Rewards that are on their way."""

    def __init__(
        self,
        calls: list[Call],
        began: types_pb2.ServiceInfo,
        on_changed: Callable[[RewardError], RewardError],
    ) -> None:
        """Takes the calls of a batch, in row order.

        Args:
            calls: under way.
            began: what the server was when the run began.
            on_changed: says more of a refusal because its functions have changed.
        """
        self._calls = calls
        self._names = tuple(fn.name for fn in began.reward_fns)
        self._on_changed = on_changed

    def result(self, timeout_s: float | None = None) -> codec.RowRewards | None:
        """Waits for all rows, at most the client's timeout_s since they were sent.

        Args:
            timeout_s: a shorter wait, in seconds.

        Returns:
            The rewards in row order, or None if no row was sent.

        Raises:
            Unavailable: the server could not be reached until the deadline, or another user's
                socket lies at the endpoint now.
            DeadlineExceeded: the rewards did not come in time.
            InvalidRequest: the server refused the request, or has other functions than when the
                run began.
            ScoringFailed: the answer can't be used.
            RewardError: the client was closed.
            TimeoutError: they are not there within `timeout_s`; ask again.
        """
        left_s = countdown(timeout_s)
        try:
            parts = [
                codec.decode_response(call.request, call.result(left_s())) for call in self._calls
            ]
        except RewardError as error:
            if error.reason != REWARD_FNS_CHANGED:
                raise
            raise self._on_changed(error) from error
        if not parts:
            return None
        rewards = codec.concatenate(parts)
        if self._names and rewards.reward_fns != self._names:
            raise ScoringFailed(
                f"the reward server answered with the functions {rewards.reward_fns}, and the run"
                f" began with {self._names}.",
                reason="BAD_RESPONSE",
            )
        return rewards

    def retry(self, timeout_s: float) -> None:
        """Sends again, with the same request ids, what has no answer; after an outage.

        Args:
            timeout_s: seconds from now for the rewards.
        """
        for call in self._calls:
            call.retry(timeout_s)
