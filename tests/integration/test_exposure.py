# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a server keeps to itself: texts and secrets out of logs, nothing run that a caller names."""

from __future__ import annotations

import contextlib

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, types_pb2

from tests.integration import certificates, service

TOKEN = "t0ken-not-for-logs"
SECRET = "completion-not-for-logs"
PROMPT = "prompt-not-for-logs"
FUNCTIONS = """
def echo(prompts, completions, **columns):
    if "raise" in completions[0]:
        raise ValueError(f"{prompts[0]} {completions[0]}")
    if "none" in completions[0]:
        return [completions[0]]
    if "exit" in completions[0]:
        raise SystemExit(completions[0])
    if "hang" in completions[0]:
        while True:
            pass
    return [1.0]
"""


@pytest.fixture
def files(tmp_path):
    """A folder with a tokenizer and a function that repeats what it was given in its errors."""
    (tmp_path / "echo.py").write_text(FUNCTIONS, encoding="utf-8")
    rewards = '[[reward]]\nfn = "echo.py:echo"\ntimeout_s = 0.5\n'
    return service.write_files(tmp_path, rewards=rewards)


def score(address, request, token=None):
    """Scores rows at an address."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        return stub.ScoreRollouts(request, timeout=60, metadata=metadata)


def secret_request():
    """Rows that succeed and that fail in every way, with texts to recognise."""
    request = service.request(
        [f"{SECRET} {how}" for how in ("ok", "raise", "none", "exit", "hang")]
    )
    for row in range(len(request.rollouts.prompts)):
        request.rollouts.prompts[row] = PROMPT
    return request


@pytest.mark.parametrize("routed", [False, True])
def test_logs_hold_no_texts_and_no_secrets(files, routed):
    """At INFO neither token nor prompt nor completion is logged, even by rows that fail with it."""
    file = certificates.token_file(files / "token", TOKEN)
    with contextlib.ExitStack() as stack:
        scoring = (*service.files(files), "--slots", "1")
        commands = []
        if routed:
            flags = (*scoring, "--token-file", file)
            worker = service.command("worker", "--listen", f"unix:{files}/w", *flags)
            commands.append(stack.enter_context(worker))
            scoring = ("--tokenizer", files, "--workers", commands[0].ready().address)
            scoring += ("--workers-token-file", file)
        listen = ("--listen", f"unix:{files}/s", "--token-file", file)
        commands.append(stack.enter_context(service.command("serve", *listen, *scoring)))
        address = commands[-1].ready().address
        answer = score(address, secret_request(), TOKEN)
        with pytest.raises(grpc.RpcError):
            score(address, secret_request(), "another")
        wrong = secret_request()
        wrong.request_id = "wrong"
        wrong.rollouts.completion_lengths[0] += 1
        with pytest.raises(grpc.RpcError):
            score(address, wrong, TOKEN)
        assert [command.end() for command in commands] == [0] * len(commands)
    # The caller gets what the functions said: these are its own rows.
    assert any(SECRET in error.message for error in answer.rewards.errors)
    assert len(answer.rewards.errors) == 4
    for command in commands:
        assert "stopped rows_scored=5" in command.log
        assert TOKEN not in command.log
        assert "another" not in command.log
        assert SECRET not in command.log
        assert PROMPT not in command.log


def test_callers_can_not_name_code_to_run(files, tmp_path):
    """Functions come from the rewards file only: paths in any text of a call stay texts."""
    marker = tmp_path / "ran"
    code = tmp_path / "code.py"
    code.write_text(f"open({str(marker)!r}, 'w')\ndef f(**_): return [9.0]\n", encoding="utf-8")
    named = f"{code}:f"
    request = service.request([named, "b"], request_id=named)
    rollouts = request.rollouts
    rollouts.prompts[:] = [named, f"__import__('runpy').run_path({str(code)!r})"]
    for name in ("fn", "reward_fns", "reward_fn", "__class__", named):
        rollouts.columns.add(name=name, string_values={"values": [named, named]})
    flags = (*service.files(files), "--slots", "1")
    with service.command("serve", "--listen", f"unix:{files}/s", *flags) as server:
        answer = score(server.ready().address, request)
    assert list(answer.rewards.reward_fns) == ["echo"]
    assert service.totals(answer.rewards).tolist() == [1, 1]
    assert not marker.exists()


def test_messages_hold_plain_values_only():
    """No field of a request holds a message of any type, or chooses functions or files."""
    names, seen = set(), set()

    def walk(message):
        if message.full_name in seen:
            return
        seen.add(message.full_name)
        for field in message.fields:
            names.add(field.name)
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                assert field.message_type.full_name.startswith("shardward.v1."), field.full_name
                walk(field.message_type)

    walk(reward_pb2.ScoreRolloutsRequest.DESCRIPTOR)
    walk(scoring_pb2.ScoreRequest.DESCRIPTOR)
    assert types_pb2.RolloutBatch.DESCRIPTOR.full_name in seen
    # A digest is compared, and chooses nothing.
    names.remove("reward_fns_digest")
    assert not [name for name in names if "fn" in name or "file" in name or "path" in name]
