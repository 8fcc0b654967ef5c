# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers for tests: files, requests, in this process or through the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import string
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import tokenizers
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, scoring_pb2_grpc, types_pb2

from reward_server import messages
from reward_server.channel import CLIENT_OPTIONS, SERVER_OPTIONS
from reward_server.handler import Handler
from reward_server.server import RewardService
from trainer import codec

ROOT = Path(__file__).parents[2]
FUNCTIONS = ROOT / "tests" / "data" / "reward_fns.py"
CHARACTERS = string.printable
PAD = len(CHARACTERS) + 2
MARKED = f"""
[[reward]]
fn = "{FUNCTIONS}:marked"
timeout_s = 30
probe = {{ completion = "x", columns = {{ seconds = 0, folder = "" }} }}
"""
REWARDS = f"""
[[reward]]
fn = "{FUNCTIONS}:faulty"
timeout_s = 0.5

[[reward]]
fn = "{FUNCTIONS}:length"
weight = 0.5

[[reward]]
fn = "{FUNCTIONS}:slow_tail"
weight = 0.0
probe = {{ completion = "x", columns = {{ seconds = 0 }} }}
"""


def write_files(folder, *, rewards=REWARDS, end_token="<end>"):
    """Writes a tokenizer of single characters and a rewards file."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {character: i for i, character in enumerate(CHARACTERS)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({**vocabulary, "<unk>": 100}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    inner.add_special_tokens([end_token, "<pad>"])
    inner.save(str(folder / "tokenizer.json"))
    config = {"eos_token": end_token, "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "rewards.toml").write_text(rewards, encoding="utf-8")
    return folder


def rollouts(completions, *, seconds=0.0):
    """Rows as a trainer sends them; every row sleeps so long."""
    ids = [CHARACTERS.index(character) for text in completions for character in text]
    rows = len(completions)
    return types_pb2.RolloutBatch(
        completion_ids=np.asarray(ids, "<i4").tobytes(),
        completion_lengths=[len(text) for text in completions],
        prompts=["p"] * rows,
        columns=[types_pb2.Column(name="seconds", double_values={"values": [seconds] * rows})],
        row_ids=range(1000, 1000 + rows),
    )


def batch(completions, tokenizer, *, seconds=0.0):
    """The same rows, checked and cut."""
    message = rollouts(completions, seconds=seconds)
    return messages.to_batch(message, tokenizer=tokenizer, reward_fns=(), step=5, mode=1)


def request(completions, *, request_id="call", seconds=0.0):
    """A call as a trainer makes it."""
    rows = rollouts(completions, seconds=seconds)
    return reward_pb2.ScoreRolloutsRequest(request_id=request_id, rollouts=rows)


def local_rollouts(completions, *, seconds=0.0, folder="", prompt="p"):
    """Rows as a trainer hands them to its client; each leaves a file in a folder, and sleeps."""
    rows, width = len(completions), max(map(len, completions))
    ids = np.full((rows, width), PAD, np.int32)
    for row, text in enumerate(completions):
        ids[row, : len(text)] = [CHARACTERS.index(character) for character in text]
    return codec.LocalRollouts(
        row_ids=np.arange(rows),
        group_ids=np.zeros(rows, np.int64),
        prompts=[prompt] * rows,
        completion_ids=ids,
        end_token_ids=[],
        pad_token_id=PAD,
        columns={"seconds": [seconds] * rows, "folder": [str(folder)] * rows},
    )


def totals(rewards):
    """Totals of an answer, float32 [b]."""
    return np.frombuffer(rewards.totals, "<f4")


def info_of(error, detail):
    """A detail of the status of a failed call, or None."""
    for packed in rpc_status.from_call(error).details:
        if packed.Is(detail.DESCRIPTOR):
            packed.Unpack(detail)
            return detail
    return None


def reason(error):
    """Reason of the ErrorInfo of a failed call."""
    info = info_of(error, error_details_pb2.ErrorInfo())
    assert info.domain == "shardward"
    return info.reason


@contextlib.asynccontextmanager
async def serving(
    folder,
    scorer,
    tokenizer,
    *,
    server_options=SERVER_OPTIONS,
    client_options=CLIENT_OPTIONS,
    **settings,
):
    """A reward server in this process over a scorer that it starts: stub and handler."""
    await scorer.start()
    server = grpc.aio.server(options=server_options)
    handler = Handler(scorer, tokenizer, **settings)
    reward_pb2_grpc.add_RewardServiceServicer_to_server(RewardService(handler), server)
    server.add_insecure_port(f"unix:{folder}/s")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder}/s", client_options) as channel:
            yield reward_pb2_grpc.RewardServiceStub(channel), handler
    finally:
        await server.stop(0)
        await scorer.close()


class Command:
    """A `reward-server` process; its standard error is kept in `lines`."""

    def __init__(self, *args, prefix=(), program=(sys.executable, "-m", "reward_server")):
        """Starts it, through another command if there is a prefix."""
        self.lines = []
        self.address = ""
        self.process = subprocess.Popen(
            [*prefix, *program, *map(str, args)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r'ready listen=(\S+)|"msg": "ready", "listen": "([^"]+)"', line):
                self.address = found[1] or found[2]
                self._ready.set()
        self._ready.set()

    def ready(self):
        """Waits for the line that says so; returns itself."""
        assert self._ready.wait(60)
        assert self.address, "".join(self.lines)
        return self

    def end(self, number=signal.SIGTERM):
        """Ends it with a signal and returns its exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.wait()

    def wait(self):
        """Waits for its end and returns its exit code."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(10)
        self.process.stderr.close()
        return code

    @property
    def log(self):
        """What it has written."""
        return "".join(self.lines)


@contextlib.contextmanager
def command(*args, **settings):
    """A `reward-server` process that does not outlive the block."""
    running = Command(*args, **settings)
    try:
        yield running
    finally:
        running.end(signal.SIGKILL)


def files(folder):
    """Flags that name the files of a folder."""
    return "--tokenizer", folder, "--rewards", folder / "rewards.toml"


def worker_info(address):
    """What a worker says of itself."""
    with grpc.insecure_channel(address, CLIENT_OPTIONS) as channel:
        stub = scoring_pb2_grpc.ScoringServiceStub(channel)
        return stub.GetInfo(scoring_pb2.ScoringServiceGetInfoRequest(), timeout=30).info


def worker_rows(address):
    """Rows that a worker has scored."""
    return worker_info(address).rows_scored


def info(address):
    """What a reward server says of itself."""
    with grpc.insecure_channel(address, CLIENT_OPTIONS) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        return stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest(), timeout=30).info


async def happened(condition):
    """Waits for a condition without holding up the event loop."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of another process, or of code without events
            await asyncio.sleep(0.01)


def until(condition, *, timeout_s=30.0):
    """Waits for a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.02)
