# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's client against real reward servers: what goes wrong, and what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from trainer import InvalidRequest, RewardClient, Unavailable, calls
from trainer.codec import LocalRollouts

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "trainer" / "recipes" / "tiny_tokenizer"
SLOW = """
import time
def slow(prompts, completions, **_):
    time.sleep(0.5)
    return [float(len(c)) for c in completions]
"""


@contextmanager
def server(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A reward server on folder/s, ended at the end."""
    (folder / "slow.py").write_text(SLOW)
    (folder / "r.toml").write_text('[[reward]]\nfn = "slow.py:slow"\n')
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "reward_server", "serve", "--listen", f"unix:{folder}/s"),
            *("--tokenizer", str(TOKENIZER), "--rewards", str(folder / "r.toml"), "--slots", "1"),
        ],
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def rollouts(**changes) -> LocalRollouts:
    """Three rows whose completions have 1, 2 and 0 characters."""
    values = {
        "row_ids": np.array([7, 8, 9]),
        "group_ids": np.zeros(3, np.int64),
        "prompts": ["1+1="] * 3,
        "completion_ids": np.array([[5, 1, 0], [5, 6, 1], [1, 5, 5]], np.int32),
        "end_token_ids": [1],
        "pad_token_id": 0,
    }
    return LocalRollouts(**(values | changes))


def test_rewards_in_row_order_and_over_several_calls(tmp_path: Path) -> None:
    """A batch over the call limit is split by rows and comes back whole and in order."""
    with server(tmp_path):
        client = RewardClient(f"unix:{tmp_path}/s", call_bytes=1024)
        client.connect()
        many = rollouts(
            row_ids=np.arange(3), prompts=["x" * 900, "y" * 900, "z"], columns={"c": [1, 2, 3]}
        )
        assert client.score(many).totals.tolist() == [1.0, 2.0, 0.0]
        client.close()


def test_no_server_names_endpoint_and_remedy(tmp_path: Path) -> None:
    """The error says where and what to start."""
    client = RewardClient(f"unix:{tmp_path}/none", connect_timeout_s=0.5)
    with pytest.raises(Unavailable, match=r"none can't be reached: No such file .*Start it"):
        client.connect()


def test_waiting_for_a_server_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Now and then a line has the address, the time that is left and why there is no answer."""
    monkeypatch.setattr(calls, "NOTICE_S", 0.2)
    client = RewardClient(f"unix:{tmp_path}/none", connect_timeout_s=3)
    with pytest.raises(Unavailable):
        client.connect()
    lines = [record.getMessage() for record in caplog.records]
    expected = rf"waiting for the reward server endpoint=unix:{tmp_path}/none waited_s=\d left_s=\d"
    assert len(lines) > 1
    assert all(re.fullmatch(f"{expected} failure=No such file or directory", x) for x in lines)


def test_other_tokenizer_is_refused(tmp_path: Path) -> None:
    """A server that would decode to other text is found out before the first step."""
    with server(tmp_path):
        client = RewardClient(f"unix:{tmp_path}/s")
        with pytest.raises(InvalidRequest, match=r"must be the trainer.s .*--print-server-flags"):
            client.connect(fingerprint="0" * 64)
        client.close()


def test_absurd_ids_are_refused(tmp_path: Path) -> None:
    """The server's refusal reaches the trainer with row and position."""
    with server(tmp_path):
        client = RewardClient(f"unix:{tmp_path}/s")
        client.connect()
        wrong = rollouts(completion_ids=np.array([[5, -9], [5, 1], [5, 1]], np.int32))
        with pytest.raises(InvalidRequest, match="got -9 in row 0 at position 1"):
            client.score(wrong)
        client.close()


def test_killed_server_is_retried_on_the_same_path(tmp_path: Path) -> None:
    """A server killed in mid-call and started again answers the retry of the same request."""
    with server(tmp_path) as first:
        client = RewardClient(f"unix:{tmp_path}/s", timeout_s=60)
        client.connect()
        handle = client.submit(rollouts())
        time.sleep(0.2)  # the call is under way; its first row takes 0.5 s
        first.kill()
        first.wait()
        with server(tmp_path):
            assert handle.result().totals.tolist() == [1.0, 2.0, 0.0]
            client.close()
