# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""All grading cases in one call through a server and a worker, hazards included."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from bench import cases
from tests.integration import pools, service
from trainer import RewardClient
from trainer.codec import LocalRollouts

KINDS = ("math", "gsm8k", "format", "robustness", "decode", "code")
FUNCTIONS = ("math", "gsm8k", "format_strict", "code_python")
REWARDS = '[route]\ncolumn = "function"\n' + "".join(
    f'[[reward]]\nfn = "{name}"\nsources = ["{name}"]\ntimeout_s = 20.0\n' for name in FUNCTIONS
)
END = 256


def all_rows():
    """Function, completion, reference, tests and verdict of every row of every case."""
    for kind in KINDS:
        for case in cases.load(kind):
            name = "code_python" if kind == "code" else cases.function_name(case)
            for completion, gold, expected in cases.rows(case):
                # Half of a surrogate pair has no token.
                if _has_tokens(completion):
                    yield name, completion, gold, case.get("tests") or [], expected


def _has_tokens(completion):
    try:
        completion.encode()
    except (AttributeError, UnicodeEncodeError):
        return False
    return True


def rollouts(rows):
    """The rows as a trainer sends them, between rows that are right."""
    inner = pools.byte_tokenizer()
    ids = [[*inner.encode(completion).ids, END] for _, completion, *_ in rows]
    padded = np.full((len(ids), max(map(len, ids))), END, np.int32)
    for row, values in zip(padded, ids, strict=True):
        row[: len(values)] = values
    numbers = np.arange(len(rows))
    return LocalRollouts(
        row_ids=numbers,
        group_ids=numbers,
        prompts=[""] * len(rows),
        completion_ids=padded,
        end_token_ids=[END],
        pad_token_id=END,
        columns={
            "function": [name for name, *_ in rows],
            "answer": [gold for _, _, gold, *_ in rows],
            "tests": [tests for *_, tests, _ in rows],
        },
    )


@pytest.mark.timeout(400)
def test_all_cases(tmp_path):
    """Every clear case has its reward, bad references have a status, and nothing is left."""
    pools.byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "rewards.toml").write_text(REWARDS)
    before = set(psutil.Process().children(recursive=True))
    tokenizer = ("--tokenizer", str(tmp_path))
    rewards = ("--rewards", str(tmp_path / "rewards.toml"))
    rows = list(all_rows())
    between = ("math", r"\boxed{42}", "42", [], 1.0)
    sent = [row for case in rows for row in (case, between)]
    worker = service.Command("worker", "--listen", f"unix:{tmp_path}/w", *tokenizer, *rewards)
    server = client = None
    try:
        address = worker.ready().address
        server = service.Command(
            "serve", "--listen", f"unix:{tmp_path}/s", "--workers", address, *tokenizer
        )
        client = RewardClient(server.ready().address, timeout_s=300)
        client.connect()
        got = client.score(rollouts(sent))
    finally:
        if client is not None:
            client.close()
        if server is not None:
            server.end()
        worker.end()
    reasons = {failure.row_id: failure for failure in got.failures}
    for row, (name, completion, _, _, expected) in enumerate(sent):
        text = f"{name}: {completion[:200]!r}"
        if expected == "timeout-handled":
            assert got.valid[row] or reasons[row].status == "TIMEOUT", text
        elif expected in ("invalid-gold", "invalid-tests"):
            assert reasons[row].status == "ERROR", text
        elif expected != "convention":
            assert got.valid[row], f"{text}: {reasons.get(row)}"
            assert got.totals[row] == expected, text
    assert len(rows) > 250
    assert set(psutil.Process().children(recursive=True)) <= before
