# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""TLS on both hops with real handshakes: what works, and what a user reads when it does not."""

from __future__ import annotations

import contextlib
import logging
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from shardward.v1 import reward_pb2, reward_pb2_grpc

from reward_server import cli, membership
from reward_server.batch import StartError
from reward_server.check import Unreachable, check
from reward_server.config import ConfigError
from reward_server.credentials import ClientCredentials
from reward_server.decode import Tokenizer
from reward_server.router import WorkerRouter
from tests.integration import certificates, service
from trainer import RewardClient, Unavailable
from trainer.codec import LocalRollouts

REWARDS = f'[[reward]]\nfn = "{service.FUNCTIONS}:length"\n'
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Certificates by name, of a CA and of one that nobody trusts."""
    folder = tmp_path_factory.mktemp("certificates")
    ca, stranger = certificates.Authority(folder), certificates.Authority(folder, "stranger")
    return {
        "ca": ca.ca,
        "stranger": stranger.ca,
        "server": ca.issue("server"),
        "client": ca.issue("client", names=("trainer",)),
        "expired": ca.issue("expired", days=-1),
        "elsewhere": ca.issue("elsewhere", names=("elsewhere.example",)),
        "by_name": ca.issue("by_name", names=("localhost",)),
        "strange_client": stranger.issue("client"),
        "token": certificates.token_file(folder / "token"),
        "other_token": certificates.token_file(folder / "other", "other"),
    }


def shown(pair):
    """Flags of a server that shows a certificate."""
    return "--tls-cert", pair.cert, "--tls-key", pair.key


@contextlib.contextmanager
def started(files, *flags, role="serve", listen="127.0.0.1:0"):
    """A server or worker that is ready."""
    where = ("--listen", listen, *service.files(files), "--slots", "1")
    with service.command(role, *where, *flags) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def servers(files, made):
    """Addresses of servers by what they do about TLS."""
    kinds = {
        "plain": (),
        "tls": shown(made["server"]),
        "mutual": (*shown(made["server"]), "--tls-client-ca", made["ca"]),
        "expired": shown(made["expired"]),
        "elsewhere": shown(made["elsewhere"]),
    }
    with contextlib.ExitStack() as stack:
        yield {
            kind: stack.enter_context(started(files, *flags)).address
            for kind, flags in kinds.items()
        }


def settings(made, ca=None, client=None, token=None):
    """Settings of a `RewardClient` from names of certificates."""
    given = {}
    if ca:
        given["tls_ca"] = made[ca]
    if client:
        given |= {"tls_cert": made[client].cert, "tls_key": made[client].key}
    if token:
        given["token_file"] = made[token]
    return given


def credentials(made, ca=None, client=None, token=None, prefix="--workers-"):
    """Credentials of a router or of `check` from names of certificates."""
    return ClientCredentials.load(
        prefix=prefix,
        ca=str(made[ca]) if ca else None,
        cert=str(made[client].cert) if client else None,
        key=str(made[client].key) if client else None,
        token_file=str(made[token]) if token else None,
    )


def rollouts():
    """Three rows of 2, 1 and 3 characters."""
    return LocalRollouts(
        row_ids=np.arange(3),
        group_ids=np.zeros(3, np.int64),
        prompts=["p"] * 3,
        completion_ids=np.array([[5, 6, 101], [5, 101, 102], [5, 6, 7]], np.int32),
        end_token_ids=[101],
        pad_token_id=102,
    )


@pytest.mark.parametrize(
    ("kind", "shows"), [("tls", {"ca": "ca"}), ("mutual", {"ca": "ca", "client": "client"})]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_rewards_over_tls(servers, made, kind, shows, host):
    """The trainer scores over TLS and over mutual TLS, by address and by name."""
    address = servers[kind].replace("127.0.0.1", host)
    with contextlib.closing(RewardClient(address, **settings(made, **shows))) as client:
        client.connect()
        assert client.score(rollouts()).totals.tolist() == [2, 1, 3]
    assert "is SERVING" in check(address, credentials(made, **shows, prefix="--"), 30)


CERTAIN = [
    ("plain", {"ca": "ca"}, "has no TLS. Start it with --tls-cert and --tls-key, or drop"),
    ("tls", {"ca": "stranger"}, "must hold the CA that signed the certificate of"),
    ("expired", {"ca": "ca"}, "has expired. Renew"),
    ("elsewhere", {"ca": "ca"}, "must name 127.0.0.1"),
]


@pytest.mark.parametrize(("kind", "shows", "text"), CERTAIN)
def test_hopeless_handshakes_end_at_once(servers, made, kind, shows, text):
    """What waiting can't mend is said at once, with the remedy, by trainer and `check`."""
    start = time.monotonic()
    client = RewardClient(servers[kind], connect_timeout_s=200, **settings(made, **shows))
    with contextlib.closing(client), pytest.raises(Unavailable) as error:
        client.connect()
    assert text in str(error.value)
    with pytest.raises(Unreachable) as refused:
        check(servers[kind], credentials(made, **shows, prefix="--"), 200)
    assert text in str(refused.value)
    assert "within" not in str(refused.value)
    assert time.monotonic() - start < 100


@pytest.mark.parametrize(
    ("kind", "shows", "text", "check_text"),
    [
        ("tls", {}, "pass tls_ca (--reward-tls-ca)", "pass --tls-ca"),
        ("mutual", {"ca": "ca"}, "pass tls_cert and tls_key", "pass --tls-cert and --tls-key"),
        (
            "mutual",
            {"ca": "ca", "client": "strange_client"},
            "--tls-client-ca must have signed tls_cert",
            "--tls-client-ca must have signed --tls-cert",
        ),
    ],
)
def test_cut_connections_say_what_may_be_missing(servers, made, kind, shows, text, check_text):
    """A server that hangs up gives no reason; the likely one is named when the time is over."""
    client = RewardClient(servers[kind], connect_timeout_s=1, **settings(made, **shows))
    with contextlib.closing(client), pytest.raises(Unavailable, match="attempts in") as error:
        client.connect()
    assert text in str(error.value)
    with pytest.raises(Unreachable, match="within 1 s") as refused:
        check(servers[kind], credentials(made, **shows, prefix="--"), 1)
    assert check_text in str(refused.value)


def test_health_has_a_plaintext_port_of_its_own(files, made):
    """Probes need no certificate there, calls find nothing there, and draining shows."""
    flags = (*shown(made["server"]), "--tls-client-ca", made["ca"])
    with started(files, *flags, "--health-listen", "127.0.0.1:0") as server:
        (line,) = (line for line in server.lines if "health checks listen=" in line)
        probe = line.rpartition("listen=")[2].strip()
        with grpc.insecure_channel(probe) as channel:
            watched = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), timeout=60
            )
            assert next(watched).status == SERVING
            with pytest.raises(grpc.RpcError) as error:
                reward_pb2_grpc.RewardServiceStub(channel).GetInfo(
                    reward_pb2.RewardServiceGetInfoRequest(), timeout=30
                )
            assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
            tls = grpc.ssl_channel_credentials(made["ca"].read_bytes())
            with grpc.secure_channel(server.address, tls) as secure:
                stub = health_pb2_grpc.HealthStub(secure)
                with pytest.raises(grpc.RpcError) as error:
                    stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
                assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            server.process.terminate()
            assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert server.wait() == 0


@pytest.mark.parametrize("spec", ["127.0.0.1:{port}", "dns:///localhost:{port}"])
async def test_router_over_mutual_tls_with_a_token(files, made, spec):
    """A worker is called by address or by a name that is looked up, and known by either."""
    pair = made["server"] if spec.startswith("127") else made["by_name"]
    flags = (*shown(pair), "--tls-client-ca", made["ca"], "--token-file", made["token"])
    tokenizer = Tokenizer.load(files)
    with started(files, *flags, role="worker") as worker:
        workers = spec.format(port=worker.address.rpartition(":")[2])
        allowed = credentials(made, "ca", "client", "token")
        running = WorkerRouter(workers, fingerprint=tokenizer.fingerprint, credentials=allowed)
        async with service.serving(files, running, tokenizer) as (stub, _):
            answer = await stub.ScoreRollouts(service.request(["ab", "abc"]), timeout=60)
    assert service.totals(answer.rewards).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("kind", "shows", "text"),
    [
        *((kind, shows, text) for kind, shows, text in CERTAIN),
        ("by_name", {"ca": "ca"}, "must name 127.0.0.1"),
        ("token", {"ca": "ca"}, "must be the token of this server, got none"),
        ("token", {"ca": "ca", "token": "other_token"}, "got another"),
    ],
)
async def test_a_worker_that_can_not_be_trusted_is_named(
    servers, files, made, kind, shows, text, monkeypatch, caplog
):
    """The router logs why at once, and says so when it gives up."""
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(membership, "START_TIMEOUT_S", 4.0)
    with contextlib.ExitStack() as stack:
        address = servers.get(kind)
        if address is None:
            flags = shown(made["by_name" if kind == "by_name" else "server"])
            if kind == "token":
                flags += ("--token-file", made["token"])
            address = stack.enter_context(started(files, *flags, role="worker")).address
        if kind == "elsewhere":
            port = address.rpartition(":")[2]
            address, text = f"dns:///localhost:{port}", "must name localhost"
        running = WorkerRouter(address, fingerprint="f", credentials=credentials(made, **shows))
        try:
            with pytest.raises(StartError) as error:
                await running.start()
        finally:
            await running.close()
    assert text in str(error.value)
    assert text in caplog.text
    assert caplog.text.count("worker refused") == 1


def test_everything_by_command_line(files, made):
    """Trainer to server to worker, both hops over mutual TLS with tokens of their own."""
    asks = ("--tls-client-ca", made["ca"])
    worker_flags = (*shown(made["by_name"]), *asks, "--token-file", made["token"])
    with started(files, *worker_flags, role="worker") as worker:
        port = worker.address.rpartition(":")[2]
        client = made["client"]
        server = (
            *("serve", "--listen", "127.0.0.1:0", "--tokenizer", files),
            *(*shown(made["server"]), *asks, "--token-file", made["other_token"]),
            *("--workers", f"dns:///localhost:{port}", "--workers-tls-ca", made["ca"]),
            *("--workers-tls-cert", client.cert, "--workers-tls-key", client.key),
            *("--workers-token-file", made["token"]),
        )
        with service.command(*server) as running:
            address = running.ready().address
            shows = settings(made, "ca", "client", "other_token")
            with contextlib.closing(RewardClient(address, **shows)) as trainer:
                trainer.connect()
                assert trainer.score(rollouts()).totals.tolist() == [2, 1, 3]
            args = ("--tls-ca", made["ca"], "--tls-cert", client.cert, "--tls-key", client.key)
            with pytest.raises(SystemExit) as code:
                cli.main([*map(str, ("check", address, *args))])
            assert code.value.code == cli.EXIT_CONFIG
            with pytest.raises(SystemExit) as code:
                cli.main(
                    [*map(str, ("check", address, *args, "--token-file", made["other_token"]))]
                )
            assert code.value.code == cli.EXIT_OK


def test_listening_beyond_this_machine(files, made):
    """With TLS it is allowed; without, it is said aloud. Callers nobody asks are said aloud too."""
    with started(files, *shown(made["server"]), listen="0.0.0.0:0") as server:
        assert f"WARNING reward_server.listen listening to everybody listen={server.address}" in (
            server.log
        )
        assert "without TLS" not in server.log
    flags = ("--insecure-bind", "--token-file", made["token"])
    with started(files, *flags, listen="0.0.0.0:0") as server:
        assert f"WARNING reward_server.listen listening without TLS listen={server.address}" in (
            server.log
        )
        assert "to everybody" not in server.log


@pytest.mark.parametrize(
    ("flags", "texts"),
    [
        (["--tls-cert", "{server.cert}"], ["`--tls-cert` must come with `--tls-key`"]),
        (["--tls-key", "{server.key}"], ["`--tls-key` must come with `--tls-cert`"]),
        (["--tls-client-ca", "{ca}"], ["--tls-client-ca", "--tls-cert", "--tls-key"]),
        (
            ["--tls-cert", "{server.cert}", "--tls-key", "{client.key}"],
            ["--tls-cert", "--tls-key", "belong together"],
        ),
        (["--tls-cert", "{token}", "--tls-key", "{server.key}"], ["must be PEM files"]),
        (["--tls-cert", "/no/file", "--tls-key", "{server.key}"], ["/no/file", "No such file"]),
        (
            [
                "--tls-cert",
                "{server.cert}",
                "--tls-key",
                "{server.key}",
                "--tls-client-ca",
                "{token}",
            ],
            ["`--tls-client-ca` must be a PEM file"],
        ),
        (
            ["--listen", "unix:/tmp/s", "--tls-cert", "{server.cert}", "--tls-key", "{server.key}"],
            ["`--tls-cert` must be left out for a unix socket"],
        ),
        (["--listen", "0.0.0.0:0"], ["--tls-cert", "--insecure-bind"]),
        (["--listen", "0.0.0.0:0", "--token-file", "{token}"], ["read the token", "--tls-cert"]),
        (["--health-listen", "8080"], ["`--health-listen` must be HOST:PORT, got '8080'"]),
        (["--metrics-listen", ":1"], ["`--metrics-listen` must be HOST:PORT, got ':1'"]),
        (["--metrics-listen", "localhost:65536"], ["`--metrics-listen` must be HOST:PORT"]),
        (["--workers-tls-ca", "{ca}"], ["must come with `--workers`"]),
        (["--workers-tls-cert", "{client.cert}"], ["must come with `--workers-tls-ca`"]),
        (
            ["--workers-tls-ca", "{ca}", "--workers-tls-key", "{client.key}"],
            ["`--workers-tls-key` must come with `--workers-tls-cert`"],
        ),
        (
            ["--workers", "a:1,unix:/tmp/w", "--workers-tls-ca", "{ca}"],
            ["`--workers-tls-ca` must be left out for a unix socket, got unix:/tmp/w"],
        ),
    ],
)
def test_flags_that_do_not_go_together_end_with_code_3(files, made, flags, texts, capsys):
    """Each names the flags and, where there is one, the file."""
    given = [flag.format(**made) for flag in flags]
    listen = [] if "--listen" in given else ["--listen", "127.0.0.1:0"]
    rewards = [] if "--workers" in given else ["--rewards", str(files / "rewards.toml")]
    with pytest.raises(SystemExit) as error:
        cli.main(["serve", *listen, "--tokenizer", str(files), *rewards, *given])
    assert error.value.code == cli.EXIT_CONFIG
    err = capsys.readouterr().err
    for text in texts:
        assert text in err


def test_an_encrypted_key_does_not_ask_for_a_password(made, tmp_path):
    """It is refused; a server has nobody to type."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(made["server"].key.read_bytes(), None)
    encrypted = tmp_path / "key"
    encrypted.write_bytes(
        certificates.private_pem(key, serialization.BestAvailableEncryption(b"word"))
    )
    with pytest.raises(ConfigError, match="belong together"):
        ClientCredentials.load(
            prefix="--",
            ca=str(made["ca"]),
            cert=str(made["server"].cert),
            key=str(encrypted),
            token_file=None,
        )
    with pytest.raises(ValueError, match="belong together"):
        RewardClient("a:1", tls_ca=made["ca"], tls_cert=made["server"].cert, tls_key=encrypted)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"tls_cert": "client"}, "must be given together"),
        ({"tls_key": "client"}, "must be given together"),
        ({"tls_ca": "token"}, "`tls_ca` (--reward-tls-ca) must be a PEM file"),
        ({"endpoint": "unix:/tmp/s", "tls_ca": "ca"}, "must be left out for a unix socket"),
        ({"tls_ca": "ca", "tls_cert": "ca", "tls_key": "ca"}, "belong together"),
    ],
)
def test_wrong_settings_of_the_client(made, wrong, text):
    """Each is refused when the client is made, before training starts."""
    given = {"endpoint": "localhost:1", **wrong}
    for name, value in given.items():
        if name != "endpoint":
            found = made[value]
            parts = {"tls_cert": "cert", "tls_key": "key"}
            given[name] = getattr(found, parts.get(name, ""), found)
    with pytest.raises(ValueError, match="must") as error:
        RewardClient(**given)
    assert text in str(error.value)
