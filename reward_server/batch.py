# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Plain types for rows to score and their rewards: what handlers pass around.

Here live values and the `Scorer` protocol; translation from and to messages lives in
`reward_server.messages`, running reward functions in `reward_server.pool`.

Legend: b rows of a call, F reward functions.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Messages of {"role", "content"}. A function with `messages = true` gets a text as one of these.
Chat = list[dict[str, Any]]
# Rows of a group that a function can see together.
MAX_GROUP_ROWS = 256


class RowStatus(enum.IntEnum):
    """Outcome of one row; the numbers are those of `shardward.v1.RowStatus`."""

    OK = 1
    ERROR = 2
    INVALID = 3
    TIMEOUT = 4
    CRASHED = 5
    OOM = 6


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows to score, checked and cut: no end token, no padding is left in the ids.

    Attributes:
        completion_ids: int32 [sum of completion_lengths], rows concatenated.
        completion_lengths: int64 [b]; zeros when the completions come as text only.
        completions: b texts, or None when they come as ids. A pool takes either, workers only ids.
            A pool whose functions all have `messages = true` takes chats, too, also as prompts.
        prompts: b texts, or None when the prompts come as ids.
        prompt_ids: int32 [sum of prompt_lengths], or None when they come as text.
        prompt_lengths: int64 [b], or None.
        completion_prefixes: b texts put before the decoded completions, or None.
        columns: dataset columns by name, each a list of b plain values.
        row_ids: b global row ids.
        group_ids: int64 [b], rows of a group are neighbours; None when functions need no groups.
        step: training step, >= 0.
        mode: "train" or "eval".
        caller: who sent the rows; callers take turns where rows wait.
    """

    completion_ids: NDArray[np.int32]
    completion_lengths: NDArray[np.int64]
    completions: Sequence[str | Chat] | None = None
    prompts: Sequence[str | Chat] | None
    prompt_ids: NDArray[np.int32] | None = None
    prompt_lengths: NDArray[np.int64] | None = None
    completion_prefixes: list[str] | None = None
    columns: dict[str, list[Any]]
    row_ids: list[int]
    group_ids: NDArray[np.int64] | None = None
    step: int = 0
    mode: str = "train"
    caller: str = ""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.completion_lengths)

    def end_of_group(self, row: int) -> int:
        """The row after the last one that must go with a row; the next where groups may be cut."""
        if self.group_ids is None:
            return row + 1
        same = self.group_ids[row:] == self.group_ids[row]
        return row + (int(same.argmin()) if not same.all() else len(same))


def group_starts(group_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Finds the first row of each run of equal ids.

    Example:
        `group_starts(np.array([7, 7, 8]))` gives `[0, 2]`.
    """
    return np.flatnonzero(np.diff(group_ids, prepend=group_ids[:1] - 1))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """Why a row has no total reward, or no value of a function that is only reported.

    Attributes:
        row: index of the row in its batch.
        reward_fn: name of the function that failed.
        status: any status but OK.
        message: one sentence, at most 1000 characters.
        worker: address of the remote worker that ran it, or "".
    """

    row: int
    reward_fn: str
    status: RowStatus
    message: str
    worker: str = ""


@dataclasses.dataclass(slots=True, kw_only=True)
class Scores:
    """Rewards of a batch, in its row order.

    Attributes:
        rewards: float64 [b, F]; NaN where a function gave no value.
        statuses: uint8 [b], values of `RowStatus`; 0 for rows without a result, if `unfinished`.
        errors: one for every row whose status is not OK, ascending by row.
        extra_columns: float32 [b] by name, NaN where a row reported none.
        queue_s: seconds from arrival to the first row's start.
        decode_s: seconds of decoding, added up over children.
        score_s: float64 [F], seconds within each function, added up over rows.
        row_s: float64 [b], seconds of each row, or None from workers, which don't send them.
        unfinished: why there are rows without a result; "" if there is none.
        unweighted_errors: what functions with weight 0 failed with, which fails no row; of a pool
            only, workers don't send them.
    """

    rewards: NDArray[np.float64]
    statuses: NDArray[np.uint8]
    errors: list[RowError]
    extra_columns: dict[str, NDArray[np.float32]]
    queue_s: float
    decode_s: float
    score_s: NDArray[np.float64]
    row_s: NDArray[np.float64] | None = None
    unfinished: str = ""
    unweighted_errors: list[RowError] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardFnInfo:
    """One reward function as offered to callers.

    Attributes:
        name: name from the rewards file.
        weight: factor in the weighted total; 0 is reported only.
        timeout_s: limit for one row in seconds.
        required_columns: columns that the function cannot do without.
        whole_groups: whether it sees the rows of a group together.
        settings: its other settings by name, see `reward_server.fn_digest.settings`.
        code_digest: hash of its source, see `reward_server.fn_digest.of_code`.
        columns: columns that it takes, or None if it takes all or that is not known.
    """

    name: str
    weight: float
    timeout_s: float
    required_columns: tuple[str, ...] = ()
    whole_groups: bool = False
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    code_digest: str = ""
    columns: tuple[str, ...] | None = dataclasses.field(default=None, compare=False)


class Deadline:
    """When the time of a call is over; a retry that joins the call may put it off.

    Attributes:
        timeout_s: seconds from the start of the call until then.
    """

    def __init__(self, timeout_s: float) -> None:
        """Begins now."""
        self._start = time.monotonic()
        self.timeout_s = timeout_s

    @classmethod
    def of(cls, time_left: float | Deadline) -> Deadline:
        """The deadline itself, or one so many seconds from now."""
        return time_left if isinstance(time_left, Deadline) else cls(time_left)

    def left_s(self) -> float:
        """Seconds that are left; below 0 when they are over."""
        return self._start + self.timeout_s - time.monotonic()

    def put_off(self, timeout_s: float) -> None:
        """Moves it to so many seconds from now, if that is later."""
        self.timeout_s += max(0.0, timeout_s - self.left_s())


class Scorer(Protocol):
    """Scores batches: the embedded pool, or a router over remote workers."""

    @property
    def reward_fns(self) -> tuple[RewardFnInfo, ...]:
        """Functions in the order of the reward matrix."""
        ...

    @property
    def reward_fns_digest(self) -> str:
        """Hash of what decides their rewards, see `reward_server.fn_digest`."""
        ...

    @property
    def slots(self) -> int:
        """Rows that can be scored at the same time."""
        ...

    @property
    def rows_per_slot(self) -> int:
        """Rows that a slot works on side by side; 1 unless functions are async."""
        ...

    @property
    def workers(self) -> int:
        """Remote workers behind this scorer; 0 for an embedded pool."""
        ...

    @property
    def unusable_workers(self) -> dict[str, str]:
        """Why remote workers get no rows, by address."""
        ...

    @property
    def children(self) -> dict[str, int]:
        """Child processes by what they do; none for a router."""
        ...

    @property
    def problem(self) -> str:
        """Why no row can be scored now, or ""."""
        ...

    @property
    def rows_missing(self) -> int:
        """Rows of the calls under way that have no result yet."""
        ...

    @property
    def rows_queued(self) -> int:
        """Those of them that wait for a slot."""
        ...

    async def start(self) -> None:
        """Starts, and returns once every function has scored a probe row.

        Raises:
            StartError: names the function and what it did wrong.
        """
        ...

    async def score(self, batch: Batch, *, timeout_s: float | Deadline) -> Scores:
        """Scores every row of a batch.

        Args:
            batch: the rows.
            timeout_s: seconds the caller still waits for, or a deadline that may be put off.

        Raises:
            TimeoutError: the time ran out.
            WorkersUnavailable: no worker is left to score a row.
        """
        ...

    async def close(self) -> None:
        """Stops; no child process is left."""
        ...


class StartError(Exception):
    """A server or worker cannot start; the message says what to change."""


class WorkersUnavailable(Exception):  # noqa: N818 - named for the state, as the status code is
    """No reward worker can be reached; the message names the addresses."""
