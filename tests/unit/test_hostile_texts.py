# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever text a row's outcome holds, the call has an answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shardward.v1 import types_pb2

from reward_server import frames, messages, status
from reward_server.batch import RewardFnInfo, RowError, RowStatus, Scores, WorkersUnavailable
from reward_server.config import ConfigError, RewardFnConfig
from reward_server.discovery import is_address
from reward_server.messages import RequestError
from reward_server.printable import sendable

UNFIT = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0xD800, 0xDBFF, 0xDFFF]))
TEXT = st.text(st.one_of(st.sampled_from(UNFIT), st.characters(exclude_categories=())), max_size=40)


@settings(deadline=None, max_examples=200)
@given(fn=TEXT, message=TEXT, worker=TEXT, column=TEXT, long=st.booleans())
def test_scores_always_become_a_message(fn, message, worker, column, long):
    """Names, reasons, addresses and extra columns arrive, readable where they were fit."""
    message = message * 1000 if long else message
    scores = Scores(
        rewards=np.full((1, 1), np.nan, np.float32),
        statuses=np.array([RowStatus.ERROR], np.uint8),
        errors=[
            RowError(row=0, reward_fn=fn, status=RowStatus.ERROR, message=message, worker=worker)
        ],
        extra_columns={column: np.ones(1, np.float32)},
        queue_s=0.0,
        decode_s=0.0,
        score_s=np.zeros(1),
    )
    made = messages.from_scores(
        scores, [RewardFnInfo(name=fn, weight=1.0, timeout_s=1.0)], total_s=0
    )
    again = types_pb2.RewardBatch.FromString(made.SerializeToString())
    (error,) = again.errors
    texts = [*again.reward_fns, error.reward_fn, error.message, error.worker]
    texts += [extra.name for extra in again.extra_columns]
    assert texts == [sendable(t)[:1000] for t in (fn, fn, message, worker, column)]
    assert not set("".join(texts)) & set(UNFIT)


@settings(deadline=None)
@given(value=st.recursive(TEXT | st.integers(), lambda x: st.lists(x) | st.dictionaries(TEXT, x)))
def test_frames_of_children_hold_only_what_can_be_sent(value):
    """At whatever depth, keys too; numbers and other text stay."""
    parts = frames.encode({"value": value, "plain": "\u00e4\U0001f600\n\t\\ud800"})
    (frame,) = frames.split(bytearray(b"".join(parts)))
    str(frame).encode()
    assert not set(flat(frame["value"])) & set(UNFIT)
    assert frame["plain"] == "\u00e4\U0001f600\n\t\\ud800"


def flat(value):
    """All text of a value."""
    if isinstance(value, dict):
        return "".join(key + flat(item) for key, item in value.items())
    return "".join(map(flat, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("error", [RequestError, WorkersUnavailable, TimeoutError, RuntimeError])
def test_a_status_can_always_be_made(error):
    """A file name from the command line may be in it, for example."""
    arguments = ("field", UNFIT) if error is RequestError else (UNFIT,)
    made = status.from_exception(error(*arguments))
    assert made.SerializeToString()


def test_names_and_addresses_must_be_fit():
    """They are refused where they are set."""
    with pytest.raises(ConfigError, match="`name` must be text of at most 100 printable"):
        RewardFnConfig(fn="a:f", name="half \ud800")
    assert is_address("unix:/tmp/s")
    assert not is_address("unix:/tmp/\udcff")
