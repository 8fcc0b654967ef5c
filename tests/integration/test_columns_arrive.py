# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Real reward functions get what the dataset holds, from a server and in the training process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.column_values import SCALARS, VALUES
from trainer import RewardClient, codec
from trainer.codec import LocalRollouts
from trainer.columns import BatchReader
from trainer.micro_batches import cut
from trainer.paths.scorer import Scorer

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "trainer" / "recipes" / "tiny_tokenizer"
FUNCTION = '''
def arrived(prompts, completions, x, want):
    """1.0 for each row that is there; an error says what came instead."""
    for value, text in zip(x, want, strict=True):
        if text and repr(value) != text:
            raise ValueError(f"got {value!r}")
    return [1.0] * len(completions)
'''
G = 2


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a server with that function."""
    folder = tmp_path_factory.mktemp("arrive")
    (folder / "f.py").write_text(FUNCTION)
    (folder / "r.toml").write_text('[[reward]]\nfn = "f.py:arrived"\n')
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "reward_server", "serve", "--listen", f"unix:{folder}/s"),
            *("--tokenizer", str(TOKENIZER), "--rewards", str(folder / "r.toml"), "--slots", "1"),
        ],
        cwd=ROOT,
    )
    client = RewardClient(f"unix:{folder}/s", timeout_s=100)
    try:
        client.connect()
        yield client
    finally:
        client.close()
        server.terminate()
        server.wait(20)


def rows_of(columns):
    """Rows of columns, each prompt with its generations."""
    b = len(columns["x"])
    return LocalRollouts(
        row_ids=np.arange(b),
        group_ids=np.arange(b) // G,
        prompts=["p"] * b,
        completion_ids=np.full((b, 2), 5, np.int32),
        end_token_ids=[1],
        pad_token_id=0,
        columns=columns,
    )


def repeated(batch):
    """A micro-batch with the generations of its prompts, as Tunix makes them."""
    return {k: list(np.repeat(v, G, axis=0)) for k, v in batch.items() if k != "prompts"}


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.lists(VALUES | SCALARS, min_size=1, max_size=6), st.integers(1, 6))
def test_values_arrive_from_dataset_to_function(client, values, size):
    """Of every kind, whatever the micro-batch, by a server and in the process."""
    names = {}
    exec(FUNCTION, names)
    scorer = Scorer([names["arrived"]], lambda ids: "".join(map(str, ids)))
    batch = {"prompts": ["p"] * len(values), "x": values, "want": [repr(v) for v in values]}
    for micro in cut([BatchReader().read(batch)], size, per_update=1):
        rows = rows_of(repeated(micro))
        rewards = client.score(rows)
        assert rewards.failures == []
        assert rewards.totals.tolist() == [1.0] * len(rows.row_ids)
        request = codec.encode_request(
            rows,
            slice(None),
            codec.completion_lengths(rows.completion_ids, [1]),
            codec.encode_columns(rows),
            request_id="r",
            process_index=0,
            fingerprint="",
        )
        (answer,) = scorer.score([type(request).FromString(request.SerializeToString())])
        assert list(answer.rewards.errors) == []


def test_a_wrong_value_would_show(client):
    """The function of these tests does look."""
    rewards = client.score(rows_of({"x": [1, True], "want": ["1", "1"]}))
    assert [failure.row_id for failure in rewards.failures] == [1]
    assert "got True" in rewards.failures[0].message


def test_columns_that_no_function_takes_are_not_sent(client):
    """The server says which ones its functions take."""
    columns = {"x": [1, 1], "want": ["1", "1"], "path": ["a", "b"]}
    handle = client.submit(rows_of(columns))
    sent = [c.name for call in handle._calls for c in call.request.rollouts.columns]
    assert sent == ["x", "want"]
    assert handle.result().totals.tolist() == [1.0, 1.0]


def test_large_columns_go_in_several_calls(client):
    """Test cases of code tasks: 77 MB in 96 rows, where a message has 64 MiB."""
    tests = ["x" * 800_000] * 96
    handle = client.submit(rows_of({"x": tests, "want": [""] * 96}))
    assert len(handle._calls) > 2
    assert handle.result().totals.tolist() == [1.0] * 96


def test_a_row_that_no_message_holds(client):
    """An error before anything is sent, with row, column and size."""
    with pytest.raises(ValueError, match=r"in row 1, 70000000 of them in `columns\['x'\]`"):
        client.submit(rows_of({"x": ["", "x" * 70_000_000], "want": ["", ""]}))
