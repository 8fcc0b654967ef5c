# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Ids to the text that reward functions get, by the trainer's tokenizer. No JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# What an id without a token becomes, as in the reward server.
UNKNOWN = "\ufffd"


def vocabulary(tokenizer: Any) -> dict[str, int]:
    """Tokens of a tokenizer and their ids, added ones included; empty where it shows none.

    Args:
        tokenizer: of transformers or SentencePiece, or Tunix's adapter around one.
    """
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    if hasattr(inner, "id_to_piece") and hasattr(inner, "vocab_size"):
        return {inner.id_to_piece(i): i for i in range(inner.vocab_size())}
    return dict(inner.get_vocab()) if hasattr(inner, "get_vocab") else {}


def decoder(tokenizer: Any, *, special_tokens: bool = False) -> Callable[[list[int]], str]:
    """Finds how to decode ids.

    An id that the vocabulary does not have becomes U+FFFD: models have more embedding rows than
    their tokenizer has ids, and sample them now and then.

    Args:
        tokenizer: of transformers or SentencePiece, or Tunix's adapter around one.
        special_tokens: whether special tokens are left in; reward functions get none.
    """
    backend = None if special_tokens else getattr(tokenizer, "backend_tokenizer", None)
    decode: Callable[[list[int]], str] = tokenizer.decode if backend is None else backend.decode
    known = frozenset(vocabulary(tokenizer).values())
    if not known:
        return decode

    def text(ids: list[int]) -> str:
        if known.issuperset(ids):
            return decode(ids)
        pieces: list[list[int]] = [[]]
        for token_id in ids:
            if token_id in known:
                pieces[-1].append(token_id)
            else:
                pieces.append([])
        return UNKNOWN.join(decode(piece) if piece else "" for piece in pieces)

    return text
