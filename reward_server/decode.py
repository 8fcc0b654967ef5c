# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Token ids to text: the tokenizer, and cutting rows at their end before they are decoded.

Legend: b rows, T ids of all rows together.
"""

from __future__ import annotations

import array
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from reward_server.batch import StartError

# Models have more embedding rows than their tokenizer has ids, padded to a round number, and sample
# them now and then. Ids that no vocabulary reaches are not theirs: those are a caller's mistake.
TOKEN_ID_LIMIT = 2**24
# What an id without a token decodes to.
UNKNOWN = "\ufffd"
_FILES = ("tokenizer_config.json", "special_tokens_map.json")


class Tokenizer:
    """A tokenizer of the `tokenizers` library with its end and pad tokens.

    Args:
        inner: the library's tokenizer.
        end_token: text of the token that ends a completion, if known.
        pad_token: text of the token used as padding, if known.
    """

    def __init__(
        self, inner: tokenizers.Tokenizer, *, end_token: str | None, pad_token: str | None
    ) -> None:
        self._inner = inner
        self._end_token = end_token
        self._pad_token = pad_token

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Loads a tokenizer from local files.

        Args:
            path: a `tokenizer.json`, or the folder that holds one. The end and pad tokens come from
                `tokenizer_config.json` or `special_tokens_map.json` beside it.

        Raises:
            StartError: names the file that is missing or wrong.
        """
        file = Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        if file.suffix == ".model" or not file.is_file():
            raise StartError(
                f"`tokenizer` must be a tokenizer.json or its folder, got {path}.{_remedy(file)}"
            )
        try:
            inner = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise StartError(f"`tokenizer` must be readable, got {file}: {error}.") from error
        inner.no_padding()
        inner.no_truncation()
        special: dict[str, Any] = {}
        for name in _FILES:
            beside = file.with_name(name)
            if beside.is_file():
                try:
                    found = json.loads(beside.read_text(encoding="utf-8"))
                except ValueError as error:
                    raise StartError(f"`tokenizer` must hold JSON in {beside}: {error}.") from error
                special = {**found, **special}
        return cls(
            inner,
            end_token=_token_text(special.get("eos_token")),
            pad_token=_token_text(special.get("pad_token")),
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary, see `ServiceInfo.tokenizer_fingerprint`."""
        digest = hashlib.sha256()
        vocabulary = self._inner.get_vocab(with_added_tokens=True)
        for token, token_id in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
            digest.update(f"{token_id}\t{token}\n".encode())
        return digest.hexdigest()

    @functools.cached_property
    def vocab_size(self) -> int:
        """Largest id plus one, added tokens included."""
        return max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @functools.cached_property
    def end_token_id(self) -> int | None:
        """Id of the end token, or None when the tokenizer's files name none."""
        return self._id(self._end_token)

    @functools.cached_property
    def pad_token_id(self) -> int | None:
        """Id of the pad token, or None when the tokenizer's files name none."""
        return self._id(self._pad_token)

    def decode(self, rows: Sequence[array.array[int]], *, skip_special_tokens: bool) -> list[str]:
        """Decodes rows of ids, each as a whole.

        An id that the vocabulary does not have becomes U+FFFD; what is on either side of it is
        decoded as a whole.

        Args:
            rows: int32 ids, see `split`.
            skip_special_tokens: whether special tokens are left out.
        """
        unknown = self._unknown(np.frombuffer(b"".join(rows), np.int32))
        decode_batch = self._inner.decode_batch
        if not unknown.any():
            texts: list[str] = decode_batch(rows, skip_special_tokens=skip_special_tokens)
            return texts
        pieces, counts, start = [], [], 0
        for row in rows:
            at = np.flatnonzero(unknown[start : start + len(row)]).tolist()
            ends = zip([-1, *at], [*at, len(row)], strict=True)
            pieces += [row[left + 1 : right] for left, right in ends]
            counts.append(len(at) + 1)
            start += len(row)
        decoded = iter(decode_batch(pieces, skip_special_tokens=skip_special_tokens))
        return [UNKNOWN.join(itertools.islice(decoded, count)) for count in counts]

    def _unknown(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which ids the vocabulary does not have: bool, as ids."""
        beyond: NDArray[np.bool_] = ids >= self.vocab_size
        if self._holes is None:
            return beyond
        missing: NDArray[np.bool_] = beyond | self._holes[np.where(beyond, 0, ids)]
        return missing

    @functools.cached_property
    def _holes(self) -> NDArray[np.bool_] | None:
        """Ids below vocab_size that have no token: bool [vocab_size], or None."""
        known = np.zeros(self.vocab_size, np.bool_)
        known[list(self._inner.get_vocab(with_added_tokens=True).values())] = True
        # Two ids may share a text, of which the vocabulary shows one.
        for token_id in np.flatnonzero(~known).tolist():
            known[token_id] = self._inner.id_to_token(token_id) is not None
        return None if known.all() else ~known

    def _id(self, token: str | None) -> int | None:
        if token is None:
            return None
        found: int | None = self._inner.token_to_id(token)
        return found


def _remedy(file: Path) -> str:
    """What to do where there is a SentencePiece model in the place of a tokenizer.json, or ""."""
    model = file if file.suffix == ".model" else file.with_name("tokenizer.model")
    if not model.is_file():
        return ""
    load = f'AutoTokenizer.from_pretrained("{model.parent.absolute()}")'
    return (
        f" {model.name} is a SentencePiece model. Convert it, and pass the new folder: python -c"
        f" 'from transformers import AutoTokenizer; {load}.save_pretrained(\"tokenizer\")'"
    )


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def split(ids: NDArray[np.int32], lengths: NDArray[np.int64]) -> list[array.array[int]]:
    """Splits concatenated ids [T] into b rows.

    Arrays, not lists: a list would hold an object for every id before the first is decoded.
    """
    values = array.array("i", ids.astype(np.int32, copy=False).tobytes())
    ends = np.cumsum(lengths).tolist()
    starts = [0, *ends][: len(ends)]
    return [values[start:end] for start, end in zip(starts, ends, strict=True)]


def cut(
    completion_ids: NDArray[np.int32],
    lengths: NDArray[np.int64],
    end_ids: Sequence[int],
    pad_id: int | None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Cuts every row at its first end id and drops pad ids.

    Args:
        completion_ids: int32 [T], rows concatenated.
        lengths: int64 [b].
        end_ids: ids that end a row; they are dropped with all that follows.
        pad_id: id to drop wherever it stands, or None. May be an end id.

    Returns:
        The ids left, int32, and the lengths, int64 [b].

    Example:
        `cut([5, 6, 2, 7, 0, 8], [4, 2], [2], 0)` gives `[5, 6, 8]` and `[2, 1]`.
    """
    lengths = np.asarray(lengths, np.int64)
    ids = np.asarray(completion_ids, np.int32)
    ids, lengths = _cut_at_end(ids, lengths, end_ids)
    if pad_id is None:
        return ids, lengths
    keep = ids != pad_id
    if keep.all():
        return ids, lengths
    counts = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    row_ends = np.cumsum(lengths)
    return ids[keep], counts[row_ends] - counts[row_ends - lengths]


def _cut_at_end(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], end_ids: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    is_end = np.zeros(ids.size, np.bool_)
    for end_id in end_ids:
        is_end |= ids == end_id
    positions = np.flatnonzero(is_end)
    if not positions.size:
        return ids, lengths
    row_ends = np.cumsum(lengths)
    row_starts = row_ends - lengths
    firsts = np.append(positions, ids.size)[np.searchsorted(positions, row_starts)]
    firsts = np.minimum(firsts, row_ends)
    keep = np.ones(ids.size, np.bool_)
    # A loop over rows touches less memory than an index for every id.
    for first, row_end in zip(firsts.tolist(), row_ends.tolist(), strict=True):
        keep[first:row_end] = False
    return ids[keep], firsts - row_starts


def check_ids(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], *, name: str = "completion_ids"
) -> None:
    """Checks that every id may be one of a model.

    Args:
        ids: int32 [T], rows concatenated.
        lengths: int64 [b].
        name: field named in the message.

    Raises:
        ValueError: names the first wrong id, its row and its position in the row.
    """
    if not ids.size or (ids.min() >= 0 and ids.max() < TOKEN_ID_LIMIT):
        return
    at = int(np.flatnonzero((ids < 0) | (ids >= TOKEN_ID_LIMIT))[0])
    ends = np.cumsum(lengths)
    row = int(np.searchsorted(ends, at, side="right"))
    position = at - int(ends[row] - lengths[row])
    raise ValueError(
        f"`{name}` must be in [0, {TOKEN_ID_LIMIT}), got {int(ids[at])} in row {row}"
        f" at position {position}."
    )
