# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A signal always ends a server or worker, whatever hangs in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.integration import service

HANGS = """
import asyncio, os, signal, threading
from reward_server import lifecycle

lifecycle.STOP_MARGIN_S = 1.0

async def main():
    stop = lifecycle._signals(0.5)
    await asyncio.get_running_loop().run_in_executor(None, os.kill, os.getpid(), signal.SIGTERM)
    await stop.wait()
    await asyncio.to_thread(threading.Event().wait)  # nobody sets it

asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_keep_a_process(tmp_path):
    """It is ended after the time to drain and a margin, with a line and a code of its own."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "did not stop within drain_s=0.5 and 1 s more" in done.stderr


def test_a_workers_file_that_hangs_does_not_keep_a_server(tmp_path, files):
    """A pipe plays a dead file system: workers stay as they are, and SIGTERM ends the server."""
    listed = tmp_path / "workers"
    with service.command(
        "worker", "--listen", f"unix:{tmp_path}/w", *service.files(files), "--slots", 1
    ) as worker:
        listed.write_text(worker.ready().address)
        flags = "--tokenizer", files, "--workers", f"file:{listed}"
        with service.command("serve", "--listen", f"unix:{tmp_path}/s", *flags) as server:
            server.ready()
            os.mkfifo(tmp_path / "pipe")
            (tmp_path / "pipe").replace(listed)
            service.until(lambda: "can't be read: no answer within 10 s" in server.log)
            assert service.info(server.address).workers == 1
            assert server.end() == 0
            assert "stopped rows_scored=0" in server.log


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_other_signals_drain_as_sigterm_does(tmp_path, files, number):
    """A terminal that is closed, and Ctrl-C."""
    flags = "--listen", f"unix:{tmp_path}/w", *service.files(files), "--slots", 1
    with service.command("worker", *flags) as worker:
        worker.ready()
        assert worker.end(number) == 0
        assert "draining" in worker.log


def test_nohup_is_heeded(tmp_path, files):
    """Who has a hang-up ignored wants the server to go on."""
    flags = "--listen", f"unix:{tmp_path}/w", *service.files(files), "--slots", 1
    with service.command("worker", *flags, prefix=("nohup",)) as worker:
        worker.ready()
        os.kill(worker.process.pid, signal.SIGHUP)
        assert service.worker_info(worker.address).slots == 1
        assert worker.end() == 0
