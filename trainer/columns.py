# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of a batch: checked, and made rows of plain values. No JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def checked_batch(batch: Any) -> dict[str, Any]:
    """Checks the columns of a batch; prompts become strings."""
    if "prompts" not in batch:
        raise ValueError(f"a batch must have the column 'prompts', got {sorted(batch)}.")
    prompts = [str(p) for p in batch["prompts"]]
    for name, values in batch.items():
        if len(values) != len(prompts):
            raise ValueError(
                f"column {name!r} must have one value per prompt ({len(prompts)}),"
                f" got {len(values)}."
            )
    columns = {
        name: values
        if isinstance(values, np.ndarray) and values.ndim == 1
        else _object_array(values)
        for name, values in batch.items()
    }
    return {**columns, "prompts": np.array(prompts, dtype=object)}


def _object_array(values: Any) -> NDArray[np.object_]:
    """A 1-D array of Python values, so that Tunix repeats rows and not what is in them."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out
