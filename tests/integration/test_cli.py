# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command `reward-server`: processes, signals, sockets and exit codes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import grpc
import psutil
import pytest
from shardward.v1 import reward_pb2_grpc

from reward_server import cli
from tests.integration import service

SERVICE = [
    "--listen",
    "--insecure-bind",
    "--health-listen",
    "--metrics-listen",
    "--tls-cert",
    "--tls-key",
    "--tls-client-ca",
    "--token-file",
    "--max-queue-mb",
    "--drain-s",
    "--log-json",
    "--log-level",
]
FILES = ["--tokenizer", "--rewards", "--slots", "--max-child-mb"]
WORKERS = [
    "--workers",
    "--worker-slots",
    "--workers-tls-ca",
    "--workers-tls-cert",
    "--workers-tls-key",
    "--workers-token-file",
]
FLAGS = {
    "serve": [*FILES, *WORKERS, *SERVICE],
    "worker": [*FILES, *SERVICE],
    "check": ["ADDR", "--timeout-s", "--tls-ca", "--tls-cert", "--tls-key", "--token-file"],
    "score": ["FILE", "--rewards", "--tokenizer", "--out", "--only-failed", "--slots"],
    "rewards": ["NAME"],
    "rewards test": ["FN", "--column", "--completion", "--rewards", "--timeout-s", "--slots"],
}


@pytest.fixture
def serve(files):
    """Flags that start a server with these files at an address."""
    return lambda listen, *more: (
        *("serve", "--listen", listen, *service.files(files), "--slots", "1"),
        *more,
    )


def run(*args):
    """Runs a command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "reward_server", *map(str, args)],
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def score(address, request, *, timeout=30):
    """Scores rows at an address."""
    with grpc.insecure_channel(address) as channel:
        return reward_pb2_grpc.RewardServiceStub(channel).ScoreRollouts(request, timeout=timeout)


def test_flags_are_frozen():
    """Scripts and manifests rely on these flags."""
    (commands,) = (a for a in cli.build_parser()._actions if a.dest == "command")
    assert commands.choices.keys() == FLAGS.keys()
    for name, parser in commands.choices.items():
        actions = [action for action in parser._actions if action.dest != "help"]
        assert [(a.option_strings or [a.metavar])[0] for a in actions] == FLAGS[name]


def test_check_describes_a_server_and_a_worker(tmp_path, files, serve):
    """`check` prints functions, slots, tokenizer and rows scored, for either of them."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path)) as server:
        server.ready()
        score(path, service.request(["a", "b", "c"]))
        done = run("check", path)
    assert done.returncode == 0, done.stderr
    for text in ("SERVING", "faulty  weight=1  timeout_s=0.5", "columns=seconds", "1 slots",
                 "3 rows scored", "103 tokens"):  # fmt: skip
        assert text in done.stdout
    flags = ("worker", "--listen", "127.0.0.1:0", *service.files(files), "--slots", "2")
    with service.command(*flags) as worker:
        done = run("check", worker.ready().address)
    assert done.returncode == 0, done.stderr
    assert "2 slots in its own processes, 0 rows scored" in done.stdout


def test_check_says_what_to_start(tmp_path):
    """Without a server, `check` ends with code 4 and the command that is missing."""
    done = run("check", f"unix:{tmp_path}/none", "--timeout-s", "0.5")
    assert done.returncode == cli.EXIT_UNREACHABLE
    assert f"reward-server serve --listen unix:{tmp_path}/none" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_live_socket_is_not_taken_over(tmp_path, serve):
    """A second server on a socket ends with code 3; the first one goes on."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path)) as server:
        server.ready()
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        second = run(*serve(path))
        assert second.returncode == cli.EXIT_CONFIG
        assert "another server holds" in second.stderr
        assert "Traceback" not in second.stderr
        assert service.totals(score(path, service.request(["ab"])).rewards).tolist() == [2]


def test_a_stale_socket_is_replaced(tmp_path, serve):
    """What a killed server left behind does not stop the next one; nor are children left."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path)) as server:
        server.ready()
        children = psutil.Process(server.process.pid).children(recursive=True)
        assert children
        server.end(signal.SIGKILL)
        assert (tmp_path / "s").exists()
        assert psutil.wait_procs(children, timeout=10)[1] == []
    with service.command(*serve(path)) as server:
        server.ready()
        score(path, service.request(["ab"]))


def test_two_servers_do_not_share_a_port(serve):
    """Port 0 is replaced by a real one, and that one is taken."""
    with service.command(*serve("127.0.0.1:0")) as server:
        address = server.ready().address
        assert int(address.rpartition(":")[2]) > 0
        assert "slots=1 reward_fns=faulty,length,slow_tail" in server.log
        second = run(*serve(address))
        third = run(*serve("127.0.0.1:0", "--health-listen", address))
        fourth = run(*serve("127.0.0.1:0", "--metrics-listen", address))
    flags = ("--listen", "--health-listen", "--metrics-listen")
    for flag, refused in zip(flags, (second, third, fourth), strict=True):
        assert refused.returncode == cli.EXIT_CONFIG
        assert f"`{flag}` must be free" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_sigterm_finishes_calls(tmp_path, serve):
    """A call under way when SIGTERM comes gets its rewards; then the server and children end."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path)) as server:
        server.ready()
        children = psutil.Process(server.process.pid).children(recursive=True)
        with grpc.insecure_channel(path) as channel:
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            request = service.request(["ab"] * 3, seconds=0.45)
            call = stub.ScoreRollouts.future(request, timeout=30)
            stub.GetInfo(service.reward_pb2.RewardServiceGetInfoRequest())
            os.kill(server.process.pid, signal.SIGTERM)
            service.until(lambda: "draining" in server.log)
            assert not call.done()
            assert service.totals(call.result().rewards).tolist() == [2, 2, 2]
        assert server.wait() == 0
        assert "stopped rows_scored=3" in server.log
        assert not any(child.is_running() for child in children)
        assert "Traceback" not in server.log


def test_drain_is_bounded_and_check_sees_it(tmp_path, serve):
    """Calls that do not end within drain_s are cut off; the second signal does not wait at all."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path, "--drain-s", "0.2")) as server:
        server.ready()
        with grpc.insecure_channel(path) as channel:
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            call = stub.ScoreRollouts.future(service.request(["ab"], seconds=60), timeout=60)
            stub.GetInfo(service.reward_pb2.RewardServiceGetInfoRequest())
            assert server.end() == 0
            with pytest.raises(grpc.RpcError) as error:
                call.result()
        assert error.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        assert "Traceback" not in server.log
    with service.command(*serve(path)) as server:
        server.ready()
        with grpc.insecure_channel(path) as channel:
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            call = stub.ScoreRollouts.future(service.request(["ab"], seconds=60), timeout=60)
            stub.GetInfo(service.reward_pb2.RewardServiceGetInfoRequest())
            os.kill(server.process.pid, signal.SIGTERM)
            service.until(lambda: "draining" in server.log)
            assert server.end() == 130
            assert isinstance(call.exception(), grpc.RpcError)


def test_a_server_that_stops_leaves_the_socket_of_another(tmp_path, serve):
    """A cleaner of /tmp removed socket and lock, so that another server could take the path."""
    path = f"unix:{tmp_path}/s"
    with service.command(*serve(path)) as first:
        first.ready()
        assert sorted(file.name for file in tmp_path.glob("s*")) == ["s", "s.lock"]
        for name in ("s", "s.lock"):
            (tmp_path / name).unlink()
        with service.command(*serve(path)) as second:
            second.ready()
            assert first.end() == 0
            rewards = score(path, service.request(["ab"])).rewards
            assert service.totals(rewards).tolist() == [2]
            assert "another server holds" in run(*serve(path)).stderr
            assert second.end() == 0
    assert not list(tmp_path.glob("s*"))


def test_sigterm_while_starting(tmp_path):
    """A server that still waits for its workers ends at once."""
    folder = service.write_files(tmp_path / "files")
    workers = f"unix:{tmp_path}/none"
    with service.command("serve", "--listen", f"unix:{tmp_path}/s", "--tokenizer", folder,
                         "--workers", workers) as server:  # fmt: skip
        service.until((tmp_path / "s.lock").exists)
        assert server.end() in (0, -signal.SIGTERM)
        assert "Traceback" not in server.log


def test_servers_and_workers_by_command_line(tmp_path, files):
    """A server in front of two workers scores on both and says so."""
    flags = ("--slots", "1", *service.files(files))
    with (
        service.command("worker", "--listen", f"unix:{tmp_path}/a", *flags) as first,
        service.command("worker", "--listen", f"unix:{tmp_path}/b", *flags) as second,
    ):
        workers = f"{first.ready().address},{second.ready().address}"
        path = f"unix:{tmp_path}/s"
        server = ("serve", "--listen", path, "--workers", workers, "--tokenizer", files)
        with service.command(*server, "--log-json", "--log-level", "DEBUG") as running:
            running.ready()
            service.until(lambda: running.log.count("worker joined") == 2)
            answer = score(path, service.request(["ab"] * 30, seconds=0.01))
            assert service.totals(answer.rewards).tolist() == [2] * 30
            assert "2 slots in 2 workers, 30 rows scored" in run("check", path).stdout
            assert running.end() == 0
        logged = [json.loads(line) for line in running.lines]
        assert {line["pid"] for line in logged} == {running.process.pid}
        (scored,) = (line for line in logged if line["msg"] == "scored")
        assert (scored["request_id"], scored["rows"], scored["failed"]) == ("call", 30, 0)
        # DEBUG is about calls, not about how libraries work inside.
        assert {line["logger"].partition(".")[0] for line in logged} == {"reward_server"}
        rows = [service.worker_rows(worker.address) for worker in (first, second)]
    assert sum(rows) == 30
    assert min(rows) >= 5


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--listen", "0.0.0.0:0"], "--insecure-bind"),
        (["--listen", "nowhere"], "`--listen` must be unix:PATH or HOST:PORT"),
        (["--listen", "unix:/" + "x" * 120], "at most 103 bytes"),
        (["--listen", "unix:/no/such/folder/s"], "must be in a folder that can be written"),
        (["--tokenizer", "/no/such/file"], "tokenizer"),
        (["--rewards", "/no/such/file"], "/no/such/file must be a readable file"),
        (["--slots", "0"], "`--slots` must be >= 1, got 0"),
        (["--max-child-mb", "0"], "`--max-child-mb` must be >= 1, got 0"),
        (["--max-queue-mb", "0"], "`--max-queue-mb` must be >= 1, got 0"),
        (["--drain-s", "-1"], "`--drain-s` must be >= 0, got -1.0"),
        (["--drain-s", "nan"], "`--drain-s` must be >= 0, got nan"),
        (["--workers", "host"], "`--workers` must be"),
        (["--workers", "a:1", "--slots", "2"], "`--slots` must be given to the workers"),
        (["--workers", "a:1", "--worker-slots", "0"], "`--worker-slots` must be >= 1, got 0"),
        (["--worker-slots", "4"], "must come with `--workers`"),
    ],
)
def test_wrong_settings_end_with_code_3(tmp_path, files, args, text, capsys):
    """Each names the flag and the value, without a traceback."""
    given = {
        "--listen": f"unix:{tmp_path}/s",
        "--tokenizer": str(files),
        "--rewards": str(files / "rewards.toml"),
    }
    given.update(zip(args[::2], args[1::2], strict=True))
    with pytest.raises(SystemExit) as error:
        cli.main(["serve", *(word for pair in given.items() for word in pair)])
    assert error.value.code == cli.EXIT_CONFIG
    assert text in capsys.readouterr().err


def test_a_function_that_does_not_load_ends_with_code_3(tmp_path, files):
    """The message names the function; nothing is served."""
    wrong = service.write_files(tmp_path / "wrong", rewards='[[reward]]\nfn = "no_module:f"\n')
    done = run("serve", "--listen", f"unix:{tmp_path}/s", *service.files(wrong), "--slots", "1")
    assert done.returncode == cli.EXIT_CONFIG
    assert "no_module" in done.stderr
    assert not list(tmp_path.glob("s*"))
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("args", [[], ["serve"], ["check"], ["serve", "--port", "1"], ["score"]])
def test_wrong_usage_ends_with_code_2(args):
    """Missing and unknown flags are usage errors."""
    with pytest.raises(SystemExit) as error:
        cli.main(args)
    assert error.value.code == cli.EXIT_USAGE


def test_rewards_are_needed_without_workers(tmp_path, files, capsys):
    """A server that runs functions must be told which."""
    with pytest.raises(SystemExit) as error:
        cli.main(["serve", "--listen", f"unix:{tmp_path}/s", "--tokenizer", str(files)])
    assert error.value.code == cli.EXIT_CONFIG
    assert "`--rewards` must name" in capsys.readouterr().err


def test_the_server_needs_no_jax():
    """Nothing that the command imports brings JAX, PyTorch or Tunix along."""
    script = (
        "import sys\nimport reward_server.cli, reward_server.child\n"
        "wrong = {'jax', 'torch', 'tunix', 'flax', 'transformers', 'trainer'} & set(sys.modules)\n"
        "assert not wrong, wrong\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=service.ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
