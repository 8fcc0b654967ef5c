# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses without a reward server, and proxies: what the trainer's client and `check` say."""

from __future__ import annotations

import contextlib
import http.server
import re
import socket
import socketserver
import threading
from concurrent import futures

import grpc
import pytest
from shardward import addresses

from reward_server import cli
from reward_server.check import Unreachable, check
from reward_server.credentials import ClientCredentials
from reward_server.listen import Listen
from tests.integration import service
from trainer import RewardClient, Unavailable


def refusal(endpoint):
    """What a client says that cannot connect; `check` says the same cause and remedy."""
    client = RewardClient(endpoint, connect_timeout_s=1)
    with contextlib.closing(client), pytest.raises(Unavailable) as error:
        client.connect()
    assert f"reward server at {endpoint} " in str(error.value)
    assert "--reward-endpoint" in str(error.value)
    assert error.value.__cause__ is not None
    with pytest.raises(Unreachable) as checked:
        check(endpoint, ClientCredentials(), 1)
    said = str(error.value).partition(" can't be reached: ")[2]
    cause, remedy = re.fullmatch(r"(.+) \(\d+ attempts? in [^)]+\)\. (.+)", said).groups()
    remedy = remedy.replace("--reward-endpoint", "the address")
    assert str(checked.value) == f"{endpoint} does not answer within 1 s: {cause}. {remedy}"
    return str(error.value)


@contextlib.contextmanager
def listening(handler):
    """A TCP server of something else on this machine: its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Web(http.server.BaseHTTPRequestHandler):
    """A web server."""

    def log_message(self, *args):
        """Says nothing."""


class Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets."""

    def handle(self):
        """Does so until the other side has enough."""
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(4096):
                self.request.sendall(data)


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_refused_connection():
    """A port without a server is told with what the system says, and how often it was tried."""
    assert "can't be reached: Connection refused (" in refusal(f"127.0.0.1:{free_port()}")
    assert " attempts in " in refusal(f"[::1]:{free_port()}")


def test_commands_that_are_proposed_can_start_a_server(tmp_path):
    """Only where one can listen: not for a folder that is missing, nor on another machine."""
    for endpoint in (f"unix:{tmp_path}/s", f"127.0.0.1:{free_port()}", f"localhost:{free_port()}"):
        text = refusal(endpoint)
        assert f"Start it (reward-server serve --listen {endpoint} ...)" in text
        Listen(address=endpoint)
    for endpoint, remedy in (
        (f"unix:{tmp_path}/none/s", f"Make the folder {tmp_path}/none, or"),
        (f"unix:{tmp_path}", f"{tmp_path} is no socket"),
        ("rewards.onion:5000", "does not resolve (Domain name not found) ("),
    ):
        text = refusal(endpoint)
        assert remedy in text
        assert "serve --listen" not in text
    assert addresses.remedy("10.0.0.1:1", "Connection refused", setting="X").startswith(
        "Start a reward server there, or"
    )


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("http://127.0.0.1:7601", "unix:PATH or HOST:PORT, without http://"),
        ("grpc://127.0.0.1:7601", "unix:PATH or HOST:PORT, without grpc://"),
        ("127.0.0.1:7601/", "unix:PATH or HOST:PORT, without / at its end"),
        ("::1:7601", "[ADDRESS]:PORT for an IPv6 address"),
        ("localhost", "unix:PATH or HOST:PORT"),
        ("", "unix:PATH or HOST:PORT"),
        ("dns:///rewards", "unix:PATH or HOST:PORT"),
        ("localhost:70000", "HOST:PORT with a port in [1, 65535]"),
    ],
)
def test_check_refuses_other_forms(address, rule, capsys):
    """At once, with the rule that the address breaks, and without a command that can't work."""
    with pytest.raises(SystemExit) as error:
        cli.main(["check", address, "--timeout-s", "60"])
    assert error.value.code == cli.EXIT_CONFIG
    said = capsys.readouterr().err
    assert said == f"reward-server check: `ADDR` must be {rule}, got {address!r}.\n"


def test_unix_path_without_a_server(tmp_path):
    """A path that is missing, a file or a folder says what the system says of it."""
    (tmp_path / "file").touch()
    assert "reached: No such file or directory (" in refusal(f"unix:{tmp_path}/none")
    assert "reached: Connection refused (" in refusal(f"unix://{tmp_path}/file")
    assert "reached: Connection refused (" in refusal(f"unix:{tmp_path}")


@pytest.mark.parametrize("handler", [Web, Echo])
def test_other_protocols(handler):
    """A server of something else is recognised."""
    with listening(handler) as address:
        assert "what listens there does not speak gRPC (" in refusal(address)


def test_silent_server():
    """A server that accepts connections and says nothing is given up at connect_timeout_s."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert "reached: no answer (1 attempt in 1.0 s)" in refusal(
            f"127.0.0.1:{server.getsockname()[1]}"
        )


def test_name_that_does_not_resolve():
    """A host without an address is named, with the resolver's reason."""
    # The resolver refuses this domain by itself: no name server is asked.
    assert "the name rewards.onion does not resolve (" in refusal("rewards.onion:5000")


def test_reward_worker_instead_of_a_reward_server(tmp_path):
    """Another gRPC service is recognised at once."""
    service.write_files(tmp_path, rewards=service.MARKED)
    flags = ("--listen", f"unix:{tmp_path}/w", *service.files(tmp_path), "--slots", 1)
    with service.command("worker", *flags) as worker:
        worker.ready()
        client = RewardClient(f"unix:{tmp_path}/w")
        with contextlib.closing(client), pytest.raises(Unavailable) as error:
            client.connect()
        assert "is another gRPC service: Method not found!" in str(error.value)
        assert "Correct --reward-endpoint" in str(error.value)


def test_check_recognises_another_grpc_service():
    """One that is no Shardward, with or without health checks."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(Unreachable, match=r"is another gRPC service: .*\. Correct the address"):
            check(f"127.0.0.1:{port}", ClientCredentials(), 30)
    finally:
        server.stop(0).wait()


def test_proxies_are_ignored(tmp_path, monkeypatch):
    """Proxies of a login node play no part."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    service.write_files(tmp_path, rewards=service.MARKED)
    flags = ("--listen", "127.0.0.1:0", *service.files(tmp_path), "--slots", 1)
    with service.command("serve", *flags) as server:
        address = server.ready().address
        with contextlib.closing(RewardClient(address)) as client:
            client.connect()
            rows = service.local_rollouts(["ab", "c"])
            assert client.score(rows).totals.tolist() == [2.0, 1.0]
