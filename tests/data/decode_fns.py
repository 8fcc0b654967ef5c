# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward functions that check the text they get; loaded in child processes only."""

from __future__ import annotations

from reward_server import decode

_decoded = {"rows": 0}
_decode = decode.Tokenizer.decode


def _counting(self, rows, **options):
    """The real thing, and a count of its rows."""
    _decoded["rows"] += len(rows)
    return _decode(self, rows, **options)


decode.Tokenizer.decode = _counting


def _compare(completions, expected):
    (completion,), (text,) = completions, expected
    if completion != text:
        raise ValueError(f"{completion!r} is not {text!r}")
    return [1.0]


def dropped(completions, text_dropped):
    """Compares with the text without special tokens."""
    return _compare(completions, text_dropped)


def kept(completions, text_kept):
    """Compares with the text that has special tokens."""
    return _compare(completions, text_kept)


def rows_decoded(completions):
    """Rows that this process has decoded so far."""
    return [float(_decoded["rows"])]
