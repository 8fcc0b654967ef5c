# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tokenizer and of cutting rows."""

from __future__ import annotations

import hashlib
import json
import time

import numpy as np
import pytest
import tokenizers

from reward_server import decode
from reward_server.batch import StartError


@pytest.fixture
def folder(tmp_path):
    """A folder with a tokenizer of five characters, an end token and a pad token."""
    vocabulary = {"a": 0, "b": 1, " ": 2, "<unk>": 3}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    inner.add_special_tokens(["</s>", "<pad>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": {"content": "</s>"}, "pad_token": "<pad>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def rows_of(*rows):
    """Rows of ids as a child has them."""
    ids = np.asarray([i for row in rows for i in row], np.int32)
    return decode.split(ids, np.asarray([len(row) for row in rows], np.int64))


def test_load_reads_ids_and_fingerprint(folder):
    """Folder and file load alike; the special ids and the fingerprint are as documented."""
    lines = b"0\ta\n1\tb\n2\t \n3\t<unk>\n4\t</s>\n5\t<pad>\n"
    for path in (folder, folder / "tokenizer.json"):
        tokenizer = decode.Tokenizer.load(path)
        assert (tokenizer.vocab_size, tokenizer.end_token_id, tokenizer.pad_token_id) == (6, 4, 5)
        assert tokenizer.fingerprint == hashlib.sha256(lines).hexdigest()


def test_load_without_special_tokens(folder):
    """Without the files beside it a tokenizer has neither end nor pad token."""
    (folder / "tokenizer_config.json").unlink()
    tokenizer = decode.Tokenizer.load(folder)
    assert tokenizer.end_token_id is None
    assert tokenizer.pad_token_id is None


def test_load_names_what_is_missing(tmp_path):
    """A missing or broken file is named."""
    with pytest.raises(StartError, match=r"must be a tokenizer\.json or its folder"):
        decode.Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(StartError, match="`tokenizer` must be readable"):
        decode.Tokenizer.load(tmp_path)


def test_decode_keeps_special_tokens_when_told(folder):
    """Special tokens are text or nothing, by the option."""
    tokenizer = decode.Tokenizer.load(folder)
    rows = rows_of([0, 4, 1], [])
    assert tokenizer.decode(rows, skip_special_tokens=True) == ["ab", ""]
    assert tokenizer.decode(rows, skip_special_tokens=False) == ["a</s>b", ""]


def test_ids_without_a_token_become_a_mark(folder):
    """Ids beyond the vocabulary, as padded embeddings have them, show in the text, one by one."""
    tokenizer = decode.Tokenizer.load(folder)
    rows = rows_of([0, 6, 1], [0, 1], [], [2**24 - 1], [6, 7, 0, 4, 9])
    assert tokenizer.decode(rows, skip_special_tokens=True) == [
        *("a\ufffdb", "ab", "", "\ufffd", "\ufffd\ufffda\ufffd"),
    ]
    assert tokenizer.decode(rows[:1], skip_special_tokens=False) == ["a\ufffdb"]


def test_holes_of_a_vocabulary_become_a_mark(tmp_path):
    """So does an id below the largest one that no token has."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 3}, unk_token="a"))
    inner.decoder = tokenizers.decoders.Fuse()
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = decode.Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == 4
    texts = tokenizer.decode(rows_of([0, 1, 3], [2, 4]), skip_special_tokens=True)
    assert texts == ["a\ufffdb", "\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("rows", "end_ids", "pad_id", "expected"),
    [
        ([[5, 6, 2, 7], [0, 8]], [2], 0, [[5, 6], [8]]),
        ([[5, 6], [], [7]], [2], 0, [[5, 6], [], [7]]),
        ([[2, 5], [5, 2], [2]], [2], 2, [[], [5], []]),
        ([[5, 3, 2], [5, 2, 3]], [2, 3], None, [[5], [5]]),
        ([[0, 0, 5, 0, 6, 0]], [], 0, [[5, 6]]),
        ([], [2], 0, []),
        ([[], [], [2, 9], []], [2], None, [[], [], [], []]),
        ([[9], [9, 9, 2, 9], [9, 9]], [2], None, [[9], [9, 9], [9, 9]]),
    ],
)
def test_cut(rows, end_ids, pad_id, expected):
    """Rows end before their first end id and hold no pad id."""
    ids = np.asarray([i for row in rows for i in row], np.int32)
    lengths = np.asarray([len(row) for row in rows], np.int64)
    cut_ids, cut_lengths = decode.cut(ids, lengths, end_ids, pad_id)
    assert cut_ids.dtype == np.int32
    assert cut_lengths.tolist() == [len(row) for row in expected]
    assert [row.tolist() for row in decode.split(cut_ids, cut_lengths)] == expected


def test_cut_is_vectorised():
    """600 000 ids take milliseconds, so no step of it is a Python loop over ids."""
    ids = np.random.default_rng(0).integers(0, 1000, 614_400, dtype=np.int32)
    lengths = np.full(2048, 300, np.int64)
    start = time.perf_counter()
    decode.check_ids(ids, lengths)
    decode.cut(ids, lengths, [7], 0)
    assert time.perf_counter() - start < 0.2


@pytest.mark.parametrize("bad", [-1, decode.TOKEN_ID_LIMIT, 2**31 - 1])
def test_check_ids_names_row_and_position(bad):
    """The first id out of range is named with its place."""
    ids = np.asarray([1, 2, 3, bad, 4], np.int32)
    with pytest.raises(ValueError, match=rf"\[0, 16777216\), got {bad} in row 2 at position 1"):
        decode.check_ids(ids, np.asarray([2, 0, 3]))


def test_check_ids_accepts():
    """Ids in range and no ids at all pass."""
    decode.check_ids(np.asarray([0, decode.TOKEN_ID_LIMIT - 1], np.int32), np.asarray([2]))
    decode.check_ids(np.asarray([], np.int32), np.asarray([0, 0]))


@pytest.mark.parametrize("given", ["tokenizer.model", ""])
def test_a_sentencepiece_model_is_named_with_the_way_to_convert_it(tmp_path, given):
    """Its folder may be given, too."""
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    with pytest.raises(StartError) as error:
        decode.Tokenizer.load(tmp_path / given)
    assert "must be a tokenizer.json or its folder" in str(error.value)
    assert f'AutoTokenizer.from_pretrained("{tmp_path}").save_pretrained' in str(error.value)
