# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a dead child means for the rows it was given: which is at fault, which are sent again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from reward_server.batch import RowError, RowStatus
from reward_server.calls import ranges_of
from reward_server.shared_memory import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward_server.calls import Chunk

_LOSSES_TO_BLAME = 3

_logger = logging.getLogger(__name__)


def bury(chunk: Chunk, names: Sequence[str]) -> list[tuple[int, int]]:
    """Takes the finished rows of a dead child and blames one row, or a group.

    Args:
        chunk: what it worked on.
        names: of the functions.

    Returns:
        Ranges of rows of the call to be sent again.
    """
    call, header = chunk.call, chunk.child.shared.header
    call.store(chunk)
    rows = chunk.unfinished()
    at = header[Word.ROW]
    if at < 0 and len(rows) == 1 and _is_to_blame(chunk, rows[0]):
        at = rows[0]
    if chunk.killed is not None:
        status, message = chunk.killed[0], chunk.killed[1] + chunk.child.line
    else:
        status, message = RowStatus.CRASHED, f"its process {chunk.child.exit_text}"
    innocent = chunk.killed is not None and chunk.suspect >= 0 and chunk.suspect != at
    blamed = [] if innocent else [r for r in rows if at <= r < at + max(1, header[Word.ROWS])]
    call.keep(chunk, blamed)
    name = names[header[Word.FUNCTION]]
    for row in blamed:
        rows.remove(row)
        call.fail(RowError(row=row + chunk.start, reward_fn=name, status=status, message=message))
    _logger.warning(
        "child lost child_pid=%d status=%s rows_again=%d: %s",
        chunk.child.pid,
        status.name,
        len(rows),
        message,
    )
    if not blamed and at < 0:
        # Several rows were under way: each again by itself, or with its group, so that the next
        # blame is certain.
        return call.units([r + chunk.start for r in rows])
    return ranges_of([r + chunk.start for r in rows])


def _is_to_blame(chunk: Chunk, row: int) -> bool:
    """Whether a row that was alone in a chunk killed its child.

    A child may have died before it read the chunk, so a row is blamed only when that would have to
    have happened again and again.
    """
    if chunk.killed is not None:
        return True
    chunk.call.losses[chunk.start + row] += 1
    return chunk.call.losses[chunk.start + row] >= _LOSSES_TO_BLAME
