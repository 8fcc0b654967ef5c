# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and its like, as a wish to stop that work can end well after."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether a signal asked to stop.

    Attributes:
        asked: set by the first SIGINT, SIGTERM or SIGHUP.
        number: that signal, or None.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.number: signal.Signals | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[Interrupt]:
        """Catches the first signal within the block; a second one ends the process as ever."""
        loop = asyncio.get_running_loop()
        # What is ignored stays so: nohup, and jobs in the background of a script.
        caught = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
        for number in caught:
            loop.add_signal_handler(number, self._ask, number, caught)
        try:
            yield self
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def _ask(self, number: signal.Signals, caught: list[signal.Signals]) -> None:
        self.number = number
        self.asked.set()
        for other in caught:
            asyncio.get_running_loop().remove_signal_handler(other)
