# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of reading a judge's score."""

from __future__ import annotations

import pytest

from reward_server.reward_fns.llm_judge import JudgeError, parse_score


@pytest.mark.parametrize(
    ("text", "answer_format", "score"),
    [
        ("<score>7</score>", "tag", 7.0),
        ("Good.\n<score> 7.5\n</score>", "tag", 7.5),
        ("<score>-3</score> so it is", "tag", -3.0),
        ('{"score": 7}', "json", 7.0),
        (' {"reason": "<score>1</score>", "score": 2.5}\n', "json", 2.5),
    ],
)
def test_scores(text, answer_format, score):
    """One number in the form that is asked for is the score."""
    assert parse_score(text, answer_format) == score


@pytest.mark.parametrize(
    ("text", "answer_format"),
    [
        ("", "tag"),
        (None, "tag"),
        ("7", "tag"),
        ('{"score": 7}', "tag"),
        ("<score>7", "tag"),
        ("<score></score>", "tag"),
        ("<score>7/10</score>", "tag"),
        ("<score>1 2</score>", "tag"),
        ("<score>nan</score>", "tag"),
        ("<score>1e3</score>", "tag"),
        ("<score>\u0667</score>", "tag"),
        ("<score>7</score><score>7</score>", "tag"),
        ("<score><score>7</score>", "tag"),
        ("<score>7</score></score>", "tag"),
        ("<score>7</score>", "json"),
        ("7", "json"),
        ("[7]", "json"),
        ("{}", "json"),
        ('{"score": "7"}', "json"),
        ('{"score": true}', "json"),
        ('{"score": null}', "json"),
        ('{"score": 1, "score": 9}', "json"),
        ('Sure: {"score": 7}', "json"),
        ('{"score": 7} {"score": 7}', "json"),
        ("[" * 100_000, "json"),
        (None, "json"),
    ],
)
def test_no_score(text, answer_format):
    """Anything else is an error, never a guess."""
    with pytest.raises(JudgeError, match="the judge"):
        parse_score(text, answer_format)
