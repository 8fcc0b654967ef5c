# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Ends a command without a word when nobody reads its output any more, as behind `| head`."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable

from reward_server.flags import EXIT_CLOSED_PIPE


def run(command: Callable[[], int]) -> int:
    """Runs a command and writes out what it has printed.

    Args:
        command: returns its exit code, or exits.

    Returns:
        The exit code; that of a closed pipe if standard output or error is one.
    """
    try:
        code = command()
    except SystemExit as end:  # argparse, after a help text
        if not isinstance(end.code, int):
            raise
        code = end.code
    except BrokenPipeError:
        if not _drop_closed():
            raise
        return EXIT_CLOSED_PIPE
    return EXIT_CLOSED_PIPE if _drop_closed() else code


def _drop_closed() -> bool:
    """Whether an output is a closed pipe; such a one takes nothing more from now on."""
    closed = False
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # the command was started without it
            continue
        try:
            stream.flush()
            # Nothing may be left to flush where a print has failed already.
            closed_now = _has_no_reader(stream.fileno())
        except BrokenPipeError:
            closed_now = True
        except (OSError, ValueError):  # closed, or no file at all
            closed_now = False
        if closed_now:
            closed = True
            # Or Python would say so itself at the very end.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return closed


def _has_no_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
