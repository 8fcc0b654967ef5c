# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of decoding with real tokenizers, through the pool; `make test-decode` fetches them."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from pathlib import Path

import grpc
import numpy as np
import pytest
import sentencepiece
from shardward.v1 import reward_pb2, types_pb2

from reward_server.batch import Batch
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.pool import Pool
from tests.integration import pools, service

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "tokenizers"
FUNCTIONS = ROOT / "tests" / "data" / "decode_fns.py"
BYTE_LEVEL = ("qwen3", "deepseek")
# These lose a blank at the beginning, and Gemma does not.
STRIPPING = ("llama2", "mistral")
PIECES = (*STRIPPING, "gemma3")
NAMES = (*BYTE_LEVEL, *PIECES, "bert")
TEXTS = (
    "Hello world, it's 3.50 for two  -- isn't it?\n\n\tYes .",
    " a blank first, and two last  ",
    "    return {k: v for k, v in x.items()}  # code\n    if a<b: pass\r\n",
    "日本語のテキスト、한국어 텍스트 และภาษาไทย",
    "Привет, мир! שלום עולם — مرحبا بالعالم",
    "emoji 🦙🧬👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 naïve 𝒳𠜎𠜱 end",
)

pytestmark = pytest.mark.skipif(
    not CACHE.is_dir(), reason="real tokenizers are missing: make test-decode"
)


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    """Each tokenizer."""
    return request.param


@functools.cache
def load(name):
    """The tokenizer as a reward server loads it."""
    return Tokenizer.load(CACHE / name)


def encode(name, text):
    """Ids of a text, made by the tokenizer's own library, without special tokens around it."""
    if name == "mistral":
        return pieces_of(name).encode(text)
    inner = load(name)._inner
    return inner.encode(text, add_special_tokens=False).ids


@functools.cache
def pieces_of(name):
    """The SentencePiece model."""
    return sentencepiece.SentencePieceProcessor(model_file=str(CACHE / name / "tokenizer.model"))


def library(name, ids, *, skip=True):
    """What the tokenizers library makes of all ids of a sequence."""
    return load(name)._inner.decode(ids, skip_special_tokens=skip)


def rows_of(rows, **columns):
    """A batch of rows of ids."""
    return Batch(
        completion_ids=np.asarray(list(itertools.chain(*rows)), np.int32),
        completion_lengths=np.asarray([len(row) for row in rows], np.int64),
        prompts=["p"] * len(rows),
        columns=columns,
        row_ids=list(range(len(rows))),
    )


def fn(function, **values):
    """Entry for a function that checks its text."""
    return RewardFnConfig(fn=f"{FUNCTIONS}:{function}", timeout_s=60, **values)


BOTH = (fn("dropped"), fn("kept", skip_special_tokens=False))


async def check(name, rows):
    """Scores rows with functions that compare their text with the library's."""
    dropped = [library(name, row) for row in rows]
    kept = [library(name, row, skip=False) for row in rows]
    async with pools.running(CACHE / name, *BOTH) as pool:
        scores = await pool.score(
            rows_of(rows, text_dropped=dropped, text_kept=kept), timeout_s=200
        )
    assert [error.message for error in scores.errors] == []
    assert scores.rewards.tolist() == [[1.0, 1.0]] * len(rows)
    return dropped, kept


async def test_completions_cut_at_any_token(name):
    """Every prefix of every text is what the library makes of these ids as a whole."""
    rows = [ids[:end] for ids in (encode(name, t) for t in TEXTS) for end in range(len(ids) + 1)]
    dropped, _ = await check(name, rows)
    assert len(rows) > 100
    if name != "bert":
        # What ends inside a character shows it, and whole texts come back as they were.
        assert any(text.endswith("\ufffd") for text in dropped)
        for text in TEXTS:
            assert library(name, encode(name, text)) in (text, unicodedata.normalize("NFC", text))


async def test_special_tokens_in_the_middle(name):
    """They are text or nothing, by the option of each function; nothing else changes."""
    inner = load(name)._inner
    added = inner.get_added_tokens_decoder()
    special = [i for i, token in sorted(added.items()) if token.special][:8]
    first, second = encode(name, "one two"), encode(name, " three\nfour")
    rows = [[*first, i, *second] for i in special] + [[i] for i in special]
    rows.append([special[0], *first, special[-1]])
    dropped, kept = await check(name, rows)
    for row, i in enumerate(special):
        assert added[i].content in kept[row]
        assert added[i].content not in dropped[row]
        assert dropped[len(special) + row] == ""


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level_is_the_bytes(name):
    """Byte-level BPE: the text is the tokens' bytes as UTF-8, the broken ones replaced."""
    inner = load(name)._inner
    for text in TEXTS:
        ids = encode(name, text)
        for start, end in itertools.combinations(range(len(ids) + 1), 2):
            tokens = [inner.id_to_token(i) for i in ids[start:end]]
            data = bytes(BYTES[character] for character in "".join(tokens))
            assert library(name, ids[start:end]) == data.decode("utf-8", errors="replace")


def _bytes():
    """Which byte a character of a byte-level token stands for (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): b for n, b in enumerate(rest)}


BYTES = _bytes()


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_joined(name):
    """SentencePiece: pieces with blanks for marks; a run of bytes is UTF-8 as a whole or not."""
    inner = load(name)._inner
    for text in TEXTS:
        ids = encode(name, text)
        for start, end in itertools.combinations(range(len(ids) + 1), 2):
            tokens = [inner.id_to_token(i) for i in ids[start:end]]
            expected = joined(tokens)
            if name in STRIPPING:
                expected = expected.removeprefix(" ")
            assert library(name, ids[start:end]) == expected


def joined(tokens):
    """Text of pieces."""
    text = ""
    groups = itertools.groupby(tokens, lambda t: len(t) == 6 and t.startswith("<0x"))
    for are_bytes, run in groups:
        if not are_bytes:
            text += "".join(run).replace("▁", " ")
            continue
        data = bytes(int(token[3:5], 16) for token in run)
        try:
            text += data.decode("utf-8")
        except UnicodeDecodeError:
            text += "\ufffd" * len(data)
    return text


def test_sentencepiece_agrees():
    """Google's library decodes prefixes alike, but for runs of bytes that end in a character.

    There the tokenizers library gives up the whole characters of the run, too.
    """
    pieces = pieces_of("mistral")
    for text in TEXTS:
        ids = encode("mistral", text)
        for end in range(len(ids) + 1):
            ours, theirs = library("mistral", ids[:end]), pieces.decode(ids[:end])
            if not ours.endswith("\ufffd"):
                assert ours == theirs
            assert ours.rstrip("\ufffd") == theirs[: len(ours.rstrip("\ufffd"))]
    ids = encode("mistral", "🦙🧬")[:-1]
    assert library("mistral", ids) == "\ufffd" * 7
    assert pieces.decode(ids) == "🦙" + "\ufffd" * 3


@pytest.mark.parametrize("name", BYTE_LEVEL + PIECES)
def test_the_first_blank_of_a_completion(name):
    """A completion that begins with a blank: kept, or lost where the tokenizer's file says Strip.

    With the prompt's last token as context no tokenizer loses it.
    """
    prompt, completion = "def f():\n  x = 1;", "    return x"
    ids = encode(name, prompt + completion)
    start = next(n for n in range(len(ids)) if len(library(name, ids[:n])) >= len(prompt))
    assert library(name, ids[:start]) == prompt
    alone = library(name, ids[start:])
    assert alone == (completion[1:] if name in STRIPPING else completion)
    last = library(name, ids[start - 1 : start])
    assert library(name, ids[start - 1 :]).removeprefix(last) == completion


def test_wordpiece_without_its_word():
    """WordPiece: a completion that goes on inside a word keeps the mark of that."""
    inner = load("bert")._inner
    ids = encode("bert", "unbelievably")
    assert [inner.id_to_token(i)[:2] for i in ids[1:]] == ["##"] * (len(ids) - 1)
    assert library("bert", ids) == "unbelievably"
    assert library("bert", ids[1:]).startswith("##")


async def test_pad_is_the_end_token(name, tmp_path):
    """Rows padded with their end token: they end at the first, over gRPC."""
    tokenizer = load(name)
    end = tokenizer.end_token_id
    texts = ["one two", "three", ""]
    rows = [encode(name, text) for text in texts]
    width = max(map(len, rows)) + 2
    padded = [row + [end] * (width - len(row)) for row in rows]
    # What follows an end token was sampled for nothing.
    padded[1][-1] = rows[0][0]
    expected = [library(name, row) for row in rows]
    async with serving(name, tmp_path) as (stub, _):
        answer = await stub.ScoreRollouts(request(padded, expected, end), timeout=60)
    assert list(answer.rewards.errors) == []
    assert service.totals(answer.rewards).tolist() == [1.0] * 3


async def test_ids_outside_the_vocabulary(name, tmp_path):
    """Those that a padded embedding adds are U+FFFD in the text; absurd ones end the call."""
    size = load(name).vocab_size
    good = encode(name, "one two three")
    async with serving(name, tmp_path) as (stub, _):
        for bad in (-1, 2**24, 2**31 - 1):
            rows = [good, [*good[:2], bad, *good[2:]]]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ScoreRollouts(request(rows, ["", ""], None), timeout=60)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert f"got {bad} in row 1 at position 2" in caught.value.details()
        rows = [
            [size - 1],
            [*good[:2], size, *good[2:]],
            [size, size + 1, *good, 2**24 - 1],
            good,
        ]
        texts = [
            library(name, [size - 1]),
            library(name, good[:2]) + "\ufffd" + library(name, good[2:]),
            "\ufffd\ufffd" + library(name, good) + "\ufffd",
            library(name, good),
        ]
        answer = await stub.ScoreRollouts(request(rows, texts, None), timeout=60)
    assert list(answer.rewards.errors) == []


def serving(name, folder):
    """A reward server with a function that compares."""
    pool = Pool(RewardsConfig(functions=(fn("dropped"),)), CACHE / name, PoolConfig(slots=1))
    return service.serving(folder, pool, load(name))


def request(rows, texts, end_id):
    """A call with rows of ids and the texts they should be."""
    return reward_pb2.ScoreRolloutsRequest(
        request_id=str(rows),
        rollouts=types_pb2.RolloutBatch(
            completion_ids=np.asarray(list(itertools.chain(*rows)), "<i4").tobytes(),
            completion_lengths=[len(row) for row in rows],
            end_token_ids=[] if end_id is None else [end_id],
            pad_token_id=end_id,
            prompts=["p"] * len(rows),
            columns=[types_pb2.Column(name="text_dropped", string_values={"values": texts})],
            row_ids=range(len(rows)),
        ),
    )


async def test_functions_share_a_decode(name):
    """Rows are decoded once for each option, however many functions ask for it."""
    rows = [encode(name, "one two")] * 7
    for options, decodes in (((True,), 1), ((True, True, True), 1), ((True, False, True), 2)):
        functions = [
            fn("rows_decoded", name=str(n), skip_special_tokens=skip)
            for n, skip in enumerate(options)
        ]
        async with pools.running(CACHE / name, *functions, slots=1) as pool:
            scores = await pool.score(rows_of(rows), timeout_s=100)
        assert scores.rewards.max() == decodes * len(rows)
