# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scores rows with functions in this process, by the rules of the reward server. No JAX.

A function is called once with all rows, as Tunix calls it. When it raises, or gives another
number of values, it is called again with each row alone, so that the others have a reward. There
is no clock and no process to kill: a function that hangs or dies takes the training with it.

Legend: b rows, F reward functions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from shardward.v1 import reward_pb2

from reward_server import decode, fn_digest, messages, registry
from reward_server.batch import Batch, RewardFnInfo, RowError, RowStatus, Scores
from reward_server.config import RewardFnConfig
from reward_server.skipped import fail_skipped
from reward_server.user_errors import explain, status_of
from trainer.in_process import InProcessReward

Request = reward_pb2.ScoreRolloutsRequest
Response = reward_pb2.ScoreRolloutsResponse
Value = float | BaseException


@dataclasses.dataclass(frozen=True, slots=True)
class _AnyToken:
    """Stands for the server's tokenizer: a trainer sends its own end and pad ids."""

    end_token_id: int | None = None
    pad_token_id: int | None = None


class Scorer:
    """Reward functions of this process.

    Attributes:
        reward_fns: in the order of the matrix.
    """

    def __init__(
        self,
        rewards: Sequence[Callable[..., Any] | InProcessReward],
        decode_ids: Callable[[list[int]], str],
    ) -> None:
        """Reads the functions' signatures.

        Args:
            rewards: the functions.
            decode_ids: ids of a completion to its text.

        Raises:
            ValueError: a function can't be called as a reward function, or two have one name.
        """
        self._decode = decode_ids
        self._functions = [_reward_fn(reward) for reward in rewards]
        names = [fn.config.name for fn in self._functions]
        if len(set(names)) != len(names):
            raise ValueError(f"`reward_fns` must have names of their own, got {names}.")
        self.reward_fns = tuple(
            RewardFnInfo(
                name=fn.config.name,
                weight=fn.config.weight,
                timeout_s=fn.config.timeout_s,
                required_columns=fn.required_columns,
                settings=fn_digest.settings(fn.config, ""),
            )
            for fn in self._functions
        )

    def score(self, requests: Sequence[Request]) -> list[Response]:
        """Scores the rows of several processes together.

        Raises:
            RequestError: a column is missing.
        """
        start = time.monotonic()
        batches = [
            messages.to_batch(
                request.rollouts,
                tokenizer=cast("decode.Tokenizer", _AnyToken()),
                reward_fns=self.reward_fns,
                step=request.step,
                mode=request.mode,
            )
            for request in requests
        ]
        values = [self._values(fn, batches) for fn in self._functions]
        responses, first = [], 0
        for request, batch in zip(requests, batches, strict=True):
            last = first + batch.rows
            scores = self._scores([column[first:last] for column in values], batch.rows)
            total_s = time.monotonic() - start
            rewards = messages.from_scores(scores, self.reward_fns, total_s=total_s)
            responses.append(
                Response(request_id=request.request_id, row_ids=batch.row_ids, rewards=rewards)
            )
            first = last
        return responses

    def _values(self, fn: registry.RewardFn, batches: Sequence[Batch]) -> list[Value]:
        """Calls a function with all rows, or with each alone if that fails."""
        rows = sum(batch.rows for batch in batches)
        if not rows:
            return []
        ids = [row for batch in batches for row in _rows_of(batch)]
        completions = [
            prefix + self._decode(row)
            for prefix, row in zip(
                (p for b in batches for p in b.completion_prefixes or [""] * b.rows),
                ids,
                strict=True,
            )
        ]
        prompts = [prompt for batch in batches for prompt in batch.prompts or []]
        columns = fn.select(
            {
                name: [v for b in batches if b.rows for v in b.columns[name]]
                for name in next(b for b in batches if b.rows).columns
            }
        )
        given = {"mode": batches[0].mode, "step": batches[0].step}
        given |= {"log_extra": _ignore, "log_metric": _ignore}

        def arguments(start: int, stop: int) -> dict[str, Any]:
            here = {**given, "completion_ids": ids[start:stop]}
            return fn.group_arguments(start, stop, prompts, completions, columns, here)

        def call(start: int, stop: int) -> list[Value]:
            try:
                result = fn.call(**arguments(start, stop))
                if fn.is_async:
                    result = asyncio.run(result)
                return fn.values(result, stop - start)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                if stop - start == 1:
                    return [error]
                return [value for row in range(start, stop) for value in call(row, row + 1)]

        return call(0, rows)

    def _scores(self, values: list[list[Value]], rows: int) -> Scores:
        rewards = np.full((rows, len(values)), np.nan)
        statuses = np.full(rows, RowStatus.OK, np.uint8)
        errors = []
        for row in range(rows):
            for index, fn in enumerate(self._functions):
                value = values[index][row]
                if not isinstance(value, BaseException):
                    rewards[row, index] = value
                elif fn.config.weight and statuses[row] == RowStatus.OK:
                    statuses[row] = status = status_of(value)
                    message = explain(value, fn)
                    error = RowError(
                        row=row, reward_fn=fn.config.name, status=status, message=message
                    )
                    errors.append(error)
        scores = Scores(
            rewards=rewards,
            statuses=statuses,
            errors=errors,
            extra_columns={},
            queue_s=0.0,
            decode_s=0.0,
            score_s=np.zeros(len(values)),
        )
        return fail_skipped(scores, [fn.config for fn in self._functions])


def _reward_fn(reward: Callable[..., Any] | InProcessReward) -> registry.RewardFn:
    if not isinstance(reward, InProcessReward):
        reward = InProcessReward(fn=reward)
    name = reward.name or getattr(reward.fn, "__name__", type(reward.fn).__name__)
    try:
        entry = RewardFnConfig(
            fn=f"in_process:{name}",
            name=name,
            weight=reward.weight,
            messages=reward.messages,
            none=reward.none,
        )
        return registry.describe(reward.fn, entry, None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"reward function {name!r} can't be called: {error}") from error


def _rows_of(batch: Batch) -> list[list[int]]:
    rows = decode.split(batch.completion_ids, batch.completion_lengths)
    return [row.tolist() for row in rows]


def _ignore(*_: Any) -> None:
    """Takes what functions report beside their rewards."""
