# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What training processes send to servers of tests, and what they must get back."""

from __future__ import annotations

import numpy as np

from tests.integration import service
from trainer.codec import LocalRollouts

END = service.CHARACTERS.index("\n")


def rollouts(rows, *, first=0, columns=None):
    """Rows whose rewards are their lengths, 1 to 7."""
    row_ids = np.arange(first, first + rows)
    ids = np.full((rows, 8), service.CHARACTERS.index("x"), np.int32)
    ids[np.arange(rows), 1 + row_ids % 7] = END
    return LocalRollouts(
        row_ids=row_ids,
        group_ids=np.zeros(rows, np.int64),
        prompts=["p"] * rows,
        completion_ids=ids,
        end_token_ids=[END],
        pad_token_id=END,
        columns=columns or {},
    )


def lengths(rows, *, first=0):
    """The rewards of such rows."""
    return [1.0 + row % 7 for row in range(first, first + rows)]
