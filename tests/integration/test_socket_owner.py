# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine takes the path of a socket: nobody calls it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from shardward.v1 import reward_pb2, reward_pb2_grpc, types_pb2

from reward_server import cli
from reward_server.check import check
from reward_server.config import ConfigError
from reward_server.credentials import ClientCredentials
from tests.integration import service
from trainer import RewardClient, Unavailable

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
OTHER, NOBODY = 1234, 65532
ROWS = ["a", "bc", "", "def"]
TOTALS = [1.0, 2.0, 0.0, 3.0]
TRAP = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
trap = socket.socket(socket.AF_UNIX)
trap.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
trap.listen()
trap.setblocking(False)
print("ready", flush=True)
sys.stdin.readline()
try:
    trap.accept()
    print("called")
except BlockingIOError:
    print("left alone")
"""
CHECK = """
import os, sys
import reward_server.check
from reward_server import cli
os.setuid(int(sys.argv[2]))
sys.exit(cli.main(["check", sys.argv[1]]))
"""


@pytest.fixture
def shared():
    """A folder where all may make files, and only their owners may remove them, like /tmp."""
    with tempfile.TemporaryDirectory(prefix="shardward-shared-", dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@contextlib.contextmanager
def trap(path, uid=OTHER):
    """A socket that another user has bound at a path; nobody may have called it at the end."""
    command = (sys.executable, "-c", TRAP, path, str(uid))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            said, _ = other.communicate("\n", timeout=30)
            Path(path).unlink()
    assert said == "left alone\n"


def refused(error, path, *, me=0):
    """Whether an error says whose socket it is, and what to do."""
    text = f"the socket {path} belongs to uid {OTHER}, and this process runs as uid {me}:"
    return text in str(error) and "--listen unix:$XDG_RUNTIME_DIR/" in str(error)


def serving(folder, path):
    """A reward server on a path, with the files of a folder."""
    flags = ("--listen", f"unix:{path}", *service.files(folder), "--slots", 2)
    return service.command("serve", *flags)


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a server, and one for the marks of its rows."""
    (tmp_path / "marks").mkdir()
    return service.write_files(tmp_path, rewards=service.MARKED)


@as_root
def test_root_calls_no_socket_of_another_user(shared):
    """Neither a trainer's client nor `check`, at once."""
    path = shared / "s"
    with trap(path):
        client = RewardClient(f"unix:{path}", connect_timeout_s=60)
        with contextlib.closing(client), pytest.raises(Unavailable) as error:
            client.connect()
        assert error.value.reason == "SOCKET_OWNER"
        assert not error.value.outage
        assert refused(error.value, path)
        with pytest.raises(ConfigError) as checked:
            check(f"unix:{path}", ClientCredentials(), 60)
        assert refused(checked.value, path)


def check_as_nobody(path):
    """What `check` says as a user who is not root, and that it says so at once."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, f"unix:{path}", str(NOBODY)],
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == cli.EXIT_CONFIG
    return done.stderr


@as_root
def test_a_user_calls_no_socket_of_another_one(shared):
    """Though it may be written to; `check` says so as for any setting that is wrong."""
    with trap(shared / "s"):
        assert refused(check_as_nobody(shared / "s"), shared / "s", me=NOBODY)


@as_root
def test_a_folder_that_can_not_be_entered(shared):
    """Nobody can know whose the socket is: the message says who looked, and who could."""
    shared.chmod(0o700)
    text = f"the socket {shared}/s can't be looked at by uid {NOBODY}: Permission denied. Call as"
    assert text in check_as_nobody(shared / "s")


@as_root
def test_a_path_that_is_taken_while_a_trainer_waits(shared, caplog):
    """It waits for a server and does not call what comes in its place."""
    client = RewardClient(f"unix:{shared}/s", timeout_s=60)
    with contextlib.closing(client), futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.score, service.local_rollouts(ROWS))
        service.until(lambda: "retrying after UNAVAILABLE" in caplog.text)
        with trap(shared / "s"), pytest.raises(Unavailable) as error:
            waiting.result(60)
    assert refused(error.value, shared / "s")
    assert error.value.request_id


@as_root
def test_a_path_that_is_taken_between_two_calls(folder, shared):
    """After the server's end, before it is started again; then its rewards are taken again."""
    path = shared / "s"
    with contextlib.closing(RewardClient(f"unix:{path}", timeout_s=60)) as client:
        with serving(folder, path) as server:
            server.ready()
            client.connect()
            assert client.score(service.local_rollouts(ROWS)).totals.tolist() == TOTALS
            assert server.end() == 0
        with trap(path), pytest.raises(Unavailable) as error:
            client.score(service.local_rollouts(ROWS))
        assert refused(error.value, path)
        with serving(folder, path) as server:
            server.ready()
            assert client.score(service.local_rollouts(ROWS)).totals.tolist() == TOTALS


@as_root
def test_a_call_under_way_outlives_a_path_that_is_taken(folder, shared):
    """Its connection was made to the server; only new calls are refused."""
    path = shared / "s"
    with (
        serving(folder, path) as server,
        contextlib.closing(RewardClient(f"unix:{path}", timeout_s=60)) as client,
    ):
        server.ready()
        client.connect()
        under_way = client.submit(
            service.local_rollouts(ROWS, seconds=0.5, folder=folder / "marks")
        )
        service.until(lambda: list((folder / "marks").iterdir()))
        path.unlink()
        with trap(path), pytest.raises(Unavailable, match="belongs to uid"):
            client.score(service.local_rollouts(ROWS))
        assert under_way.result().totals.tolist() == TOTALS


@as_root
def test_a_worker_whose_path_is_taken(folder, shared):
    """The reward server says whose it is, and takes the worker once it is the right one's."""
    path = shared / "w"
    listen = ("--listen", f"unix:{shared}/s", "--tokenizer", folder)
    with service.command("serve", *listen, "--workers", f"unix:{path}") as server:
        with trap(path):
            service.until(lambda: "worker refused" in server.log)
            assert refused(server.log, path)
        flags = ("--listen", f"unix:{path}", *service.files(folder), "--slots", 1)
        with service.command("worker", *flags) as worker:
            worker.ready()
            server.ready()
            with contextlib.closing(RewardClient(f"unix:{shared}/s", timeout_s=60)) as client:
                assert client.score(service.local_rollouts(ROWS)).totals.tolist() == TOTALS
            assert worker.end() == 0
        service.until(lambda: "worker left" in server.log)
        with trap(path):
            service.until(lambda: server.log.count("worker refused") == 2)


@as_root
def test_a_server_of_a_containers_own_user(folder):
    """Root calls it in the folder that is mounted for both, open to all as in Kubernetes."""
    with tempfile.TemporaryDirectory(prefix="shardward-", dir="/run") as name:
        Path(name).chmod(0o777)
        with (
            serving(folder, f"{name}/s") as server,
            contextlib.closing(RewardClient(f"unix:{name}/s")) as client,
        ):
            server.ready()
            os.chown(f"{name}/s", NOBODY, NOBODY)
            assert client.connect().slots == 2
            assert "SERVING" in check(f"unix:{name}/s", ClientCredentials(), 30)


def test_a_server_is_started_again_under_calls_of_several_threads(folder):
    """All go on with the new one."""
    path = folder / "s"
    with (
        futures.ThreadPoolExecutor() as threads,
        contextlib.closing(RewardClient(f"unix:{path}", timeout_s=120)) as client,
        contextlib.ExitStack() as servers,
    ):
        server = servers.enter_context(serving(folder, path)).ready()
        client.connect()
        for _ in range(2):
            marks = set((folder / "marks").iterdir())
            rows = service.local_rollouts(ROWS, seconds=0.2, folder=folder / "marks")
            waiting = [threads.submit(client.score, rows) for _ in range(6)]
            service.until(lambda marks=marks: set((folder / "marks").iterdir()) - marks)
            server.end(signal.SIGKILL)
            server = servers.enter_context(serving(folder, path)).ready()
            assert [call.result(120).totals.tolist() for call in waiting] == [TOTALS] * 6


class Named(reward_pb2_grpc.RewardServiceServicer):
    """A reward server that says which one it is."""

    def __init__(self, name):
        """Takes the name."""
        self._info = types_pb2.ServiceInfo(version=name)

    def GetInfo(self, request, context):  # noqa: N802
        """Says it."""
        return reward_pb2.RewardServiceGetInfoResponse(info=self._info)


@contextlib.contextmanager
def named(name, path):
    """Such a server."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    reward_pb2_grpc.add_RewardServiceServicer_to_server(Named(name), server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


def paths_held():
    """Descriptors of this process that hold a socket by its path."""
    links = list(Path("/proc/self/fd").iterdir())
    return sum(link.is_socket() and link.readlink().is_absolute() for link in links)


def test_each_call_goes_to_the_server_that_has_the_path_now(tmp_path):
    """Though those of before are still there; and none of them is held on to."""
    path, before = tmp_path / "s", paths_held()
    with (
        named("a", tmp_path / "a"),
        named("b", tmp_path / "b"),
        contextlib.closing(RewardClient(f"unix:{path}")) as client,
    ):
        held = []
        for name in "ababababab":
            (tmp_path / "new").hardlink_to(tmp_path / name)
            (tmp_path / "new").rename(path)
            assert client.connect().version == name
            held.append(paths_held() - before)
        assert held == [1] * 10
        client.close()
        assert paths_held() == before


def test_a_client_that_nobody_closes_holds_nothing(tmp_path):
    """Once it is no more referred to."""
    gc.collect()
    before = paths_held()
    with named("a", tmp_path / "s"):
        client = RewardClient(f"unix:{tmp_path}/s")
        client.connect()
        assert paths_held() == before + 1
        del client
        gc.collect()
        assert paths_held() == before
