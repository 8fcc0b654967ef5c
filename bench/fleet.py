# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward servers, workers and a proxy as processes of their own, for measurements."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import tokenizers

ROOT = Path(__file__).parents[1]
HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
CHARACTERS = string.ascii_lowercase
END = len(CHARACTERS) + 1
_START_S = 120


def write_files(folder: Path, fn: str) -> None:
    """Writes a tokenizer of letters and a rewards file with one function of this benchmark."""
    vocabulary = {character: i for i, character in enumerate(CHARACTERS)}
    model = tokenizers.models.WordLevel({**vocabulary, "<unk>": len(vocabulary)}, "<unk>")
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    inner.add_special_tokens(["<end>", "<pad>"])
    inner.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "rewards.toml").write_text(
        f'[[reward]]\nfn = "{ROOT / "bench" / "reward_fns.py"}:{fn}"\ntimeout_s = 60\n'
        'probe = { completion = "x", columns = { seconds = 0.0 } }\n'
    )


class Process:
    """A reward server or worker.

    Attributes:
        address: where it listens, once `ready` has returned.
        pid: of its main process.
    """

    def __init__(self, command: str, folder: Path, *flags: str) -> None:
        """Starts it."""
        arguments = ("--tokenizer", str(folder), *flags)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reward_server", command, *arguments],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.address = ""
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            if found := re.search(r"ready listen=(\S+)", line):
                self.address = found[1]
                self._is_ready.set()
            elif " WARNING " in line or " ERROR " in line:
                sys.stderr.write(line)
        self._is_ready.set()

    def ready(self) -> Process:
        """Waits until it serves; returns itself."""
        if not self._is_ready.wait(_START_S) or not self.address:
            raise SystemExit(f"a process of the benchmark did not start: {self._process.args}.")
        return self

    def end(self) -> None:
        """Ends it, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)


@contextlib.contextmanager
def workers(folder: Path, count: int, slots: int) -> Iterator[list[str]]:
    """So many workers on loopback; yields their addresses."""
    flags = ("--rewards", str(folder / "rewards.toml"), "--slots", str(slots))
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(count):
            process = Process("worker", folder, "--listen", "127.0.0.1:0", *flags)
            stack.callback(process.end)
            started.append(process)
        yield [process.ready().address for process in started]


@contextlib.contextmanager
def servers(folder: Path, count: int, spec: str, *flags: str) -> Iterator[list[Process]]:
    """So many reward servers over the same workers."""
    with contextlib.ExitStack() as stack:
        started = []
        for number in range(count):
            listen = ("--listen", f"unix:{folder}/s{number}")
            process = Process("serve", folder, *listen, "--workers", spec, *flags)
            stack.callback(process.end)
            started.append(process)
        yield [process.ready() for process in started]


def haproxy_config(addresses: list[str], listen: str, slots: int) -> str:
    """The configuration that we ship, for these workers."""
    lines = []
    for line in HAPROXY.read_text().splitlines():
        if line.strip().startswith("server worker"):
            if "worker1 " in line:
                for number, address in enumerate(addresses, 1):
                    one = line.replace("10.0.0.1:7000", address)
                    lines.append(one.replace("worker1", f"worker{number}"))
            continue
        lines.append(line)
    text = "\n".join(lines) + "\n"
    text = text.replace("bind 127.0.0.1:7000", f"bind {listen}")
    return text.replace("maxconn 8", f"maxconn {slots}")


@contextlib.contextmanager
def haproxy(folder: Path, addresses: list[str], slots: int) -> Iterator[str | None]:
    """HAProxy before the workers; yields its address, or None where it is not installed."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    file = folder / "haproxy.cfg"
    file.write_text(haproxy_config(addresses, listen, slots))
    process = subprocess.Popen([program, "-db", "-f", str(file)])
    try:
        yield listen
    finally:
        process.kill()
        process.wait(30)
