# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools for tests, with batches and functions for them."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path

import numpy as np
import psutil
import tokenizers

from reward_server.batch import Batch
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool

FUNCTIONS = Path(__file__).parents[1] / "data" / "reward_fns.py"
CHARACTERS = string.printable


def write_tokenizer(folder):
    """Writes a tokenizer of single characters and returns its path."""
    vocabulary = {character: i for i, character in enumerate(CHARACTERS)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({**vocabulary, "<unk>": 100}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    inner.add_special_tokens(["<end>"])
    inner.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def byte_tokenizer():
    """A tokenizer of bytes, which gives back any text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


def fn(name, **values):
    """Entry for a function of the helper file, or for a full path."""
    path = name if ":" in name else f"{FUNCTIONS}:{name}"
    return RewardFnConfig(fn=path, **values)


def encode(texts):
    """Ids and lengths of texts."""
    table = {character: i for i, character in enumerate(CHARACTERS)}
    ids = [table[character] for text in texts for character in text]
    return np.asarray(ids, np.int32), np.asarray([len(text) for text in texts], np.int64)


def batch(completions, *, prompts=None, **values):
    """A batch of these completions."""
    ids, lengths = encode(completions)
    values.setdefault("columns", {})
    return Batch(
        completion_ids=ids,
        completion_lengths=lengths,
        prompts=["p"] * len(lengths) if prompts is None else prompts,
        row_ids=list(range(1000, 1000 + len(lengths))),
        **values,
    )


@contextlib.asynccontextmanager
async def running(tokenizer, *functions, **limits):
    """A started pool; afterwards no descendant of this process is left."""
    before = set(psutil.Process().children(recursive=True))
    limits.setdefault("slots", 2)
    pool = Pool(RewardsConfig(functions=functions), tokenizer, PoolConfig(**limits))
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
        assert set(psutil.Process().children(recursive=True)) <= before
