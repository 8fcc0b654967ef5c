# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards by functions in the training processes, on rows gathered from all of them.

What it costs grows with the number of processes: each gets the tokens, prompts and columns of
all rows, and scores them all unless the first one does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

from shardward.v1 import reward_pb2

from trainer import codec
from trainer.agreement import Agreement, Attempt
from trainer.arrays import RowArrays
from trainer.decode import decoder
from trainer.gather import gather_bytes
from trainer.in_process import InProcessReward
from trainer.paths import ALLGATHER
from trainer.paths.host import HostRewards
from trainer.paths.path import SampledPart
from trainer.paths.scorer import Scorer


class AllgatherPath:
    """Gathers rows and scores them in this process."""

    def __init__(
        self,
        reward_fns: Sequence[Callable[..., Any] | InProcessReward],
        arrays: RowArrays,
        *,
        agreement: Agreement,
        tokenizer: Any,
        first_only: bool,
    ) -> None:
        """Takes the functions.

        Args:
            reward_fns: equal on all processes.
            arrays: where the rows lie.
            agreement: of all processes.
            tokenizer: of the trainer.
            first_only: whether process 0 scores for all; else each process scores all rows.

        Raises:
            ValueError: a function can't be called as a reward function.
        """
        self._arrays = arrays
        self._agreement = agreement
        self._first_only = first_only
        self._scorer = Scorer(reward_fns, decoder(tokenizer))
        self._calls = itertools.count()
        # Functions run while the device computes log-probabilities.
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="rewards")

    @property
    def name(self) -> str:
        """What it is, and who scores."""
        return f"{ALLGATHER}, {'the first process' if self._first_only else 'all'}"

    @property
    def timeout_s(self) -> float | None:
        """None: nothing can end a function of this process."""
        return None

    def connect(self, fingerprint: str) -> list[list[Any]]:
        """Says what the functions are; the tokenizer is the trainer's own."""
        del fingerprint
        return [[fn.name, fn.weight, fn.settings, fn.code_digest] for fn in self._scorer.reward_fns]

    def begin(self, place: str) -> HostRewards:
        """Starts a step."""
        everyone: list[reward_pb2.ScoreRolloutsRequest] = []

        def gather(part: SampledPart) -> codec.LocalRollouts:
            made: list[codec.LocalRollouts] = []

            def encode() -> bytes:
                made.append(part.owned_rollouts(self._arrays))
                return self._request(made[0]).SerializeToString()

            everyone[:] = [
                reward_pb2.ScoreRolloutsRequest.FromString(data)
                for data in gather_bytes(self._agreement, place, Attempt(encode))
            ]
            return made[0]

        def submit(_: codec.LocalRollouts) -> _Gathered:
            return self._gathered(place, list(everyone))

        return HostRewards(self._arrays, gather, submit)

    def _request(self, rollouts: codec.LocalRollouts) -> reward_pb2.ScoreRolloutsRequest:
        return codec.encode_request(
            rollouts,
            slice(None),
            codec.completion_lengths(rollouts.completion_ids, rollouts.end_token_ids),
            codec.encode_columns(rollouts),
            request_id=f"{rollouts.step}/{next(self._calls)}",
            process_index=self._agreement.process_index,
            fingerprint="",
        )

    def _gathered(self, place: str, requests: list[reward_pb2.ScoreRolloutsRequest]) -> _Gathered:
        """Starts to score the rows of all processes, unless process 0 does."""
        process = self._agreement.process_index
        scored = None
        if not (self._first_only and process):
            scored = self._thread.submit(self._scorer.score, requests)

        def share() -> reward_pb2.ScoreRolloutsResponse:
            mine = Attempt(lambda: b"" if scored is None else _joined(scored.result()))
            answers = gather_bytes(self._agreement, f"scores of {place}", mine)[0]
            return reward_pb2.ScoreRolloutsResponse.FromString(_nth(answers, process))

        def own() -> reward_pb2.ScoreRolloutsResponse:
            assert scored is not None
            return scored.result()[process]

        return _Gathered(requests[process], share if self._first_only else own)


class _Gathered:
    """Rows of all processes that are scored; the rewards of this one's are wanted."""

    def __init__(
        self,
        request: reward_pb2.ScoreRolloutsRequest,
        answer: Callable[[], reward_pb2.ScoreRolloutsResponse],
    ) -> None:
        self._request = request
        self._answer = answer

    def result(self, timeout_s: float | None = None) -> codec.RowRewards | None:
        """Waits for them, until the functions have ended."""
        del timeout_s
        response = self._answer()
        return codec.decode_response(self._request, response) if response.row_ids else None

    def retry(self, timeout_s: float) -> None:
        """Does nothing: no server is asked that could be away."""


def _joined(responses: Sequence[reward_pb2.ScoreRolloutsResponse]) -> bytes:
    """Puts answers one after the other, each behind its size in 8 bytes."""
    answers = [response.SerializeToString() for response in responses]
    return b"".join(len(answer).to_bytes(8, "little") + answer for answer in answers)


def _nth(data: bytes, index: int) -> bytes:
    """Finds an answer among those that `_joined` put together."""
    while True:
        size = int.from_bytes(data[:8], "little")
        if not index:
            return data[8 : 8 + size]
        data, index = data[8 + size :], index - 1
