# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of all kinds that a column may hold, and how to compare them with their types."""

from __future__ import annotations

from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**63), 2**64),
    st.floats(),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


def typed(value):
    """A value with all its types, which == does not compare."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value).__name__, repr(value)
