# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Role of a run: a whole program, judged outside by what it writes to stdout."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback

from reward_server.sandbox import source
from reward_server.sandbox.messages import Channel


def run(channel: Channel) -> None:
    """Runs the program that the first message holds, and ends the process as Python would."""
    sources = channel.receive()["sources"]
    channel.close()
    os._exit(_exit_code(sources))


def _exit_code(sources: list[str]) -> int:
    code = 0
    try:
        source.load("__main__", sources)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - code under test may raise anything
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        code = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001
        code = code or 1
    return code & 0xFF
