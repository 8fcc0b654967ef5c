# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: what passes without one, what a wrong one gets, and files that hold one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc

from reward_server import cli
from reward_server.auth import read_token
from reward_server.config import ConfigError
from reward_server.credentials import ClientCredentials
from reward_server.decode import Tokenizer
from reward_server.router import WorkerRouter
from tests.integration import certificates, service
from tests.integration.test_client import rollouts
from trainer import InvalidRequest, RewardClient
from trainer import cli as train_cli

TOKEN = "s3cret-t0ken"
NOBODY = 65532
REWARDS = f'[[reward]]\nfn = "{service.FUNCTIONS}:length"\n'


@pytest.fixture(scope="module")
def token(files):
    """The file of the right token."""
    return certificates.token_file(files / "token", TOKEN)


@pytest.fixture(scope="module")
def address(files, token):
    """A server on a unix socket that asks for the token."""
    flags = (*service.files(files), "--slots", "1", "--token-file", token)
    with service.command("serve", "--listen", f"unix:{files}/s", *flags) as server:
        yield server.ready().address


def info(channel, *metadata):
    """Asks a server what it is."""
    stub = reward_pb2_grpc.RewardServiceStub(channel)
    request = reward_pb2.RewardServiceGetInfoRequest()
    return stub.GetInfo(request, timeout=30, metadata=metadata)


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ([], "TOKEN_MISSING"),
        (["Bearer wrong"], "TOKEN_WRONG"),
        (["Bearer"], "TOKEN_WRONG"),
        (["Bearer "], "TOKEN_WRONG"),
        ([TOKEN], "TOKEN_WRONG"),
        ([f"Basic {TOKEN}"], "TOKEN_WRONG"),
        ([f"Bearer {TOKEN}x"], "TOKEN_WRONG"),
        ([f"Bearer {TOKEN[:-1]}"], "TOKEN_WRONG"),
        ([f"Bearer {TOKEN}", "Bearer wrong"], "TOKEN_WRONG"),
    ],
)
def test_calls_without_the_token_are_refused(address, shown, reason):
    """The status says whether none or another was shown, and where to pass it; never which."""
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as error:
        info(channel, *(("authorization", value) for value in shown))
    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert service.reason(error.value) == reason
    assert service.info_of(error.value, error_details_pb2.RetryInfo()) is None
    for flag in ("--reward-token-file", "--workers-token-file", "--token-file"):
        assert flag in error.value.details()
    assert TOKEN not in error.value.details()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_calls_with_the_token_pass(address, scheme):
    """The word before it is written as one likes, as HTTP has it."""
    with grpc.insecure_channel(address) as channel:
        assert info(channel, ("authorization", f"{scheme} {TOKEN}")).info.slots == 1


def test_only_health_passes_without_the_token(address):
    """Probes pass; reflection, scoring and methods that don't exist are all refused alike."""
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        checked = health.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        score = reward_pb2_grpc.RewardServiceStub(channel).ScoreRollouts
        unknown = channel.unary_unary("/grpc.health.v1.HealthX/Check")
        for call in (
            lambda: next(reflect(iter([ask]), timeout=30)),
            lambda: score(service.request(["ab"]), timeout=30),
            lambda: unknown(b"", timeout=30),
        ):
            with pytest.raises(grpc.RpcError) as error:
                call()
            assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        answer = next(reflect(iter([ask]), timeout=30, metadata=metadata))
        names = {found.name for found in answer.list_services_response.service}
        assert "shardward.v1.RewardService" in names


@pytest.mark.parametrize("wrong", [None, "another"])
def test_the_trainer_does_not_try_again(address, tmp_path, wrong):
    """A refused token is final, at the start and in a step, however long the client would wait."""
    given = {}
    if wrong is not None:
        given["token_file"] = certificates.token_file(tmp_path / "t", wrong)
    client = RewardClient(address, connect_timeout_s=200, timeout_s=200, **given)
    start = time.monotonic()
    with contextlib.closing(client):
        with pytest.raises(InvalidRequest, match="--reward-token-file") as error:
            client.connect()
        assert error.value.reason == ("TOKEN_WRONG" if wrong else "TOKEN_MISSING")
        with pytest.raises(InvalidRequest, match="--reward-token-file"):
            client.score(rollouts())
    assert time.monotonic() - start < 100


def test_commands_show_the_token(address, token, tmp_path, capsys):
    """`check` and `grpo-train` pass on the file they are given, and end with code 3 without."""
    for flags, code in ((["--token-file", str(token)], cli.EXIT_OK), ([], cli.EXIT_CONFIG)):
        with pytest.raises(SystemExit) as error:
            cli.main(["check", address, *flags])
        assert error.value.code == code
    assert "--token-file (check)" in capsys.readouterr().err
    train = ["--reward-endpoint", address, "--recipe", "tiny"]
    train_cli.check_endpoint(train_cli.parse([*train, "--reward-token-file", str(token)]))
    with pytest.raises(InvalidRequest):
        train_cli.check_endpoint(train_cli.parse(train))
    missing = train_cli.parse([*train, "--reward-token-file", str(tmp_path / "none")])
    with pytest.raises(train_cli.ConfigError, match="--reward-token-file"):
        train_cli.check_endpoint(missing)


async def test_a_worker_that_came_back_with_another_token_is_lost(files, token, tmp_path, caplog):
    """Its rows go to a worker that takes the token; the call does not fail."""
    other = certificates.token_file(tmp_path / "other", "other")
    flags = (*service.files(files), "--slots", "1", "--token-file")
    first, second = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    tokenizer = Tokenizer.load(files)
    shown = ClientCredentials.load(
        prefix="--workers-", ca=None, cert=None, key=None, token_file=str(token)
    )
    running = WorkerRouter(
        f"{first},{second}", fingerprint=tokenizer.fingerprint, credentials=shown
    )
    with contextlib.ExitStack() as stack:

        def start(where, file):
            command = service.command("worker", "--listen", where, *flags, file)
            return stack.enter_context(command)

        workers = [start(first, token), start(second, token)]
        for worker in workers:
            worker.ready()
        async with service.serving(tmp_path, running, tokenizer) as (stub, _):
            await service.happened(lambda: running.workers == 2)
            known = running._workers[first]
            info_before = known.info
            await asyncio.to_thread(workers[0].end)
            await asyncio.to_thread(start(first, other).ready)
            await service.happened(
                lambda: running.unusable_workers.get(first, "").startswith("UNAUTHENTICATED")
            )
            # As if nobody had looked in between.
            known.info = info_before
            answer = await stub.ScoreRollouts(service.request(["ab"] * 20), timeout=60)
            assert running.workers == 1
    assert service.totals(answer.rewards).tolist() == [2] * 20
    assert f"worker left address={first} reason=UNAUTHENTICATED" in caplog.text


@pytest.mark.parametrize(
    ("content", "mode", "text"),
    [
        ("word", 0o640, "got mode 0640"),
        ("word", 0o604, "got mode 0604"),
        ("word", 0o644, "chmod 600"),
        ("", 0o600, "got an empty file"),
        (" \n", 0o600, "got an empty file"),
        ("two words", 0o600, "one word of ASCII"),
        ("schlüssel", 0o600, "one word of ASCII"),
        (None, 0o700, "must be a regular file"),
    ],
)
def test_files_of_tokens_are_checked(tmp_path, content, mode, text):
    """Both sides refuse a file that others can read or that holds no token, without quoting it."""
    file = tmp_path / "token"
    if content is None:
        file.mkdir(mode=mode)
    else:
        certificates.token_file(file, content, mode=mode)
    with pytest.raises(ConfigError) as error:
        read_token("--token-file", str(file))
    assert "`--token-file` must" in str(error.value)
    assert text in str(error.value)
    with pytest.raises(ValueError, match=r"`token_file` \(--reward-token-file\) must") as error:
        RewardClient("unix:/tmp/s", token_file=file)
    assert text in str(error.value)
    assert not content or content.strip() == "" or content not in str(error.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("owner", "mode", "good"),
    [(0, 0o440, True), (0, 0o460, False), (0, 0o444, False), (NOBODY, 0o440, False)],
)
def test_a_token_of_root_may_be_for_a_group(owner, mode, good):
    """A Secret's file in a pod is root's and readable for the group; more, or another's, is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = certificates.token_file(Path(folder, "token"), TOKEN, mode=mode)
        os.chown(file, owner, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            for read in (
                lambda: read_token("--token-file", str(file)),
                lambda: RewardClient("unix:/tmp/s", token_file=file),
            ):
                with contextlib.nullcontext() if good else pytest.raises(ValueError, match="owner"):
                    read()
        finally:
            os.seteuid(0)
            os.setegid(0)


def test_a_readable_token_ends_the_start_with_code_3(files, tmp_path, capsys):
    """A server does not start with a secret that all may read."""
    file = certificates.token_file(tmp_path / "token", TOKEN, mode=0o644)
    with pytest.raises(SystemExit) as error:
        cli.main([
            *("serve", "--listen", f"unix:{tmp_path}/s", "--token-file", str(file)),
            *map(str, service.files(files)),
        ])  # fmt: skip
    assert error.value.code == cli.EXIT_CONFIG
    err = capsys.readouterr().err
    assert f"got mode 0644 of {file}. Say: chmod 600 {file}" in err
    assert TOKEN not in err


def test_credentials_do_not_show_their_secrets(token):
    """Their text holds neither token nor key, so that no log or traceback does."""
    shown = ClientCredentials.load(prefix="--", ca=None, cert=None, key=None, token_file=str(token))
    assert shown.token == TOKEN
    assert TOKEN not in repr(shown)
    assert TOKEN not in repr(vars(RewardClient("unix:/tmp/s", token_file=token)))
