# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Functions of the training process score rows by the rules of the reward server."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainer import InProcessReward, codec
from trainer.paths.scorer import Scorer

END, PAD = 1, 0


def request(texts: list[str], first: int = 0, **columns: list):
    """Rows whose ids are the codes of their characters, with an end token and padding."""
    ids = np.full((len(texts), 12), PAD, np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text) + 1] = [*map(ord, text), END]
    row_ids = np.arange(first, first + len(texts))
    rollouts = codec.LocalRollouts(
        row_ids=row_ids,
        group_ids=row_ids,
        prompts=[f"p{i}" for i in row_ids],
        completion_ids=ids,
        end_token_ids=[END],
        pad_token_id=PAD,
        columns=columns,
        step=7,
    )
    lengths = codec.completion_lengths(ids, [END])
    return codec.encode_request(
        rollouts,
        slice(None),
        lengths,
        codec.encode_columns(rollouts),
        request_id=f"r{first}",
        process_index=0,
        fingerprint="",
    )


def decode(ids: list[int]) -> str:
    """Codes back to characters."""
    return "".join(map(chr, ids))


def score(rewards, *requests):
    """Scores requests; rewards and failures of each, as a client would read them."""
    responses = Scorer(rewards, decode).score(requests)
    return [codec.decode_response(q, a) for q, a in zip(requests, responses, strict=True)]


def test_one_call_with_all_rows():
    """A function sees the rows of all processes at once, with Tunix's arguments."""
    calls = []

    def length(prompts, completions, answer, **kwargs):
        calls.append((prompts, completions, answer, kwargs["mode"]))
        return np.array([float(len(c)) for c in completions])

    first, second = score(
        [length], request(["a", "bb"], answer=[1, 2]), request(["ccc"], first=5, answer=[3])
    )
    assert calls == [(["p0", "p1", "p5"], ["a", "bb", "ccc"], [1, 2, 3], "train")]
    assert first.totals.tolist() == [1, 2]
    assert second.totals.tolist() == [3]


def test_a_row_that_raises_is_found():
    """The batch is called again row by row, and the others keep their rewards."""

    class Timeout(BaseException):
        """As verifiers raise that keep clear of `except Exception`."""

    def picky(completions, **_):
        if "bad" in completions:
            raise Timeout("too long")
        return [float(len(c)) for c in completions]

    (got,) = score([picky], request(["a", "bad", "cc"]))
    assert got.valid.tolist() == [True, False, True]
    assert got.totals[[0, 2]].tolist() == [1, 2]
    (failure,) = got.failures
    assert (failure.row_id, failure.status, failure.reward_fn) == (1, "ERROR", "picky")
    assert failure.message.startswith("Timeout: too long (line ")


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "1", [1.0, 2.0]])
def test_what_is_no_number_is_invalid(value):
    """None, NaN and the like fail their row, never silently 0."""
    (got,) = score([lambda completions, **_: [0.5, value]], request(["a", "b"]))
    assert got.valid.tolist() == [True, False]
    assert [f.status for f in got.failures] == ["INVALID"]


def test_wrong_number_of_values_fails_all():
    """A value for another row would be worse than none."""
    (got,) = score([lambda completions, **_: [1.0] * 3], request(["a", "b"]))
    assert got.valid.tolist() == [False, False]
    assert {f.status for f in got.failures} == {"INVALID"}


def test_weights_chats_and_async():
    """TRL's chats, coroutine functions, weights; a function of weight 0 fails no row."""

    def chat(completions, **_):
        return [float(len(c[0]["content"])) for c in completions]

    async def later(completions, completion_ids, **_):
        return [float(len(ids)) for ids in completion_ids]

    def broken(completions):
        raise ValueError("no")

    rewards = [
        InProcessReward(fn=chat, messages=True, weight=0.5),
        later,
        InProcessReward(fn=broken, weight=0.0, name="seen"),
    ]
    (got,) = score(rewards, request(["a", "bb"]))
    assert got.reward_fns == ("chat", "later", "seen")
    assert got.totals.tolist() == [1.5, 3]
    assert np.isnan(got.rewards[:, 2]).all()


def test_functions_of_one_name_are_refused():
    """Their metrics could not be told apart."""
    with pytest.raises(ValueError, match="names of their own"):
        Scorer([lambda completions: [], lambda completions: []], decode)
