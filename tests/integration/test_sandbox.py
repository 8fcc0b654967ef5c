# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the sandbox with programs that try to get out, stay, or take the machine."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from reward_server.sandbox.sandbox import Sandbox, SandboxError

ROOT = Path(__file__).parents[2]
PROBES = ROOT / "tests" / "data" / "sandbox_probes.py"
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
# An interpreter that any user can start.
SYSTEM_PYTHON = "/usr/bin/python3"
WAIT_S = 30


@pytest.fixture(scope="module")
def sandbox():
    """A sandbox of the kind that this machine has."""
    with Sandbox() as started:
        yield started


def run(sandbox, code, *, stdin=b"", timeout_s=60):
    """Result of a program."""
    return sandbox.program([code], stdin=stdin, timeout_s=timeout_s)


def eventually(condition):
    """Says whether a condition becomes true."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_gone(pid):
    """Says whether a process has ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


@pytest.fixture
def open_folder():
    """A folder that every user can read, with the sandbox and the probes in it."""
    folder = Path(tempfile.mkdtemp(prefix="shardward-test-"))
    folder.chmod(0o755)
    (folder / "reward_server").mkdir(mode=0o755)
    for name in ("__init__.py", "grading_errors.py"):
        shutil.copy(ROOT / "reward_server" / name, folder / "reward_server")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        ROOT / "reward_server" / "sandbox", folder / "reward_server" / "sandbox", ignore=ignored
    )
    shutil.copy(PROBES, folder)
    yield folder
    shutil.rmtree(folder)


def probe(folder, kind, *arguments, prefix=(), python=sys.executable, owner=None, path=None):
    """What the probes found; the secret belongs to the user who runs them."""
    secret = folder / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    if owner is not None:
        os.chown(secret, owner, owner)
    env = {"PATH": path or os.environ["PATH"], "PYTHONPATH": str(folder)}
    command = [*prefix, python, "-B", str(folder / PROBES.name), kind, str(secret), *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env=env, timeout=240
    )
    assert secret.read_text() == "secret"
    assert not Path(tempfile.gettempdir(), "shardward-escaped").exists()
    return json.loads(result.stdout)


def assert_all_stopped(results, kind):
    """Every probe was stopped."""
    assert results.pop("kind", results) == kind
    assert len(results) > 40
    assert {name: text for name, text in results.items() if text != "stopped"} == {}


def test_nothing_gets_out(open_folder):
    """Files, processes, the network and the kernel's back doors are closed."""
    assert_all_stopped(probe(open_folder, "landlock"), "landlock")


@pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="needs a Python for all users")
def test_nothing_gets_out_without_root(open_folder):
    """A user without rights can lock up code as well, even away from the user's own files."""
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    results = probe(open_folder, "landlock", prefix=prefix, python=SYSTEM_PYTHON, owner=NOBODY)
    assert_all_stopped(results, "landlock")


@pytest.mark.skipif(not IS_ROOT, reason="only root can take rights away")
def test_nothing_gets_out_of_a_container(open_folder):
    """The default profile of container runtimes, which has no user namespaces, is enough."""
    assert_all_stopped(probe(open_folder, "auto", "container"), "landlock")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_nothing_gets_out_of_bubblewrap(open_folder):
    """The same probes under bubblewrap."""
    assert_all_stopped(probe(open_folder, "bwrap"), "bwrap")


@pytest.mark.skipif(not IS_ROOT, reason="the filter needs root")
def test_without_a_sandbox_nothing_runs(open_folder):
    """A kernel without Landlock and no bwrap: an error that says what is missing and what to do."""
    setpriv = Path(shutil.which("setpriv"))
    only = open_folder / "bin"
    only.mkdir()
    (only / "setpriv").symlink_to(setpriv)
    results = probe(open_folder, "auto", "no-landlock", path=str(only))
    assert list(results) == ["error"]
    for text in ("landlock: the kernel has no", "bwrap: there is no bwrap", 'sandbox = "none"'):
        assert text in results["error"]


def test_kinds_are_checked(caplog, monkeypatch):
    """An unknown kind is refused; doing without is possible and warns; bwrap must be there."""
    with pytest.raises(ValueError, match="`sandbox` must be one of auto, landlock"):
        Sandbox("docker")
    with Sandbox("none") as sandbox:
        assert run(sandbox, "print(1)").output == b"1\n"
    assert "sandbox=none" in caplog.text
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match="there is no bwrap on the PATH"):
        Sandbox("bwrap")


def test_program_has_its_input_and_nothing_else(sandbox, monkeypatch):
    """Input, output and exit code pass; the environment of the server does not."""
    monkeypatch.setenv("SECRET", "s3cret")
    code = "import os, sys\nprint(sys.stdin.read(), sorted(os.environ))\nsys.exit(3)"
    with Sandbox() as own:
        result = run(own, code, stdin="é\n".encode())
    assert result.output.decode() == "é\n ['HOME', 'LANG', 'TMPDIR']\n"
    assert result.code == 3


def test_ends_like_an_interpreter(sandbox):
    """Exit handlers run, threads are waited for, and a traceback is exit code 1."""
    code = (
        "import atexit, threading, time\n"
        "atexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
    )
    assert run(sandbox, code).output == b"thread\nexit\n"
    assert run(sandbox, f"{code}\n1 / 0").code == 1
    assert run(sandbox, "import sys\nprint(sys.argv)\nexit(3)").code == 3
    assert run(sandbox, "x = (").code == 1
    assert run(sandbox, "import os\nos.abort()").code == -signal.SIGABRT


def test_standard_library_is_there(sandbox):
    """Modules that the zygote has not loaded can be imported, and asyncio works."""
    code = (
        "import asyncio, ctypes, encodings.idna, sqlite3, ssl, urllib.request, xml.dom.minidom\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "async def f():\n    await asyncio.sleep(0)\n    return 1\n"
        "print(asyncio.run(f()), list(ThreadPoolExecutor(2).map(abs, [-1])))"
    )
    assert run(sandbox, code).output == b"1 [1]\n"


def test_hang_is_killed(sandbox):
    """A program that sleeps or spins is killed, and the next one runs."""
    for code in ("import time\ntime.sleep(1e6)", "while True: pass", "import os\nos.read(4, 1)"):
        assert run(sandbox, f"print(1, flush=True)\n{code}", timeout_s=0.5).code != 0
    assert run(sandbox, "print(2)").output == b"2\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "s = 'a'\nwhile True: s += s",
        "x = []\nwhile True: x.append(bytearray(10**6))",
        "import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return f(x + 1)\nf(0)",
        "with open('big', 'wb') as h:\n    while True: h.write(b'0' * 10**6)",
        "i = 0\nwhile True:\n    open(f'{i}', 'wb').write(b'0' * 10**7)\n    i += 1",
        "i = 0\nwhile True:\n    open(f'{i}', 'wb').close()\n    i += 1",
        (
            "import os\nos.mkdir('hidden', 0o300)\nos.chdir('hidden')\ni = 0\n"
            "while True:\n    open(f'{i}', 'wb').write(b'0' * 10**7)\n    i += 1"
        ),
        "while True: print('x' * 10**6)",
        "import os\nfor _ in range(4): os.fork()\nx = bytearray(3 * 10**8)\nwhile True: pass",
        (
            "import os, signal\nfor s in range(1, 32):\n"
            "    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass"
        ),
    ],
    ids=[
        *(
            "forks",
            "doubling",
            "blocks",
            "recursion",
            "big file",
            "files",
            "inodes",
            "hidden files",
            "output",
        ),
        *("memory of many", "ignored signals"),
    ],
)
def test_bomb_is_stopped(sandbox, code):
    """Programs that want all of the machine end, the folder is empty, and the next one runs."""
    assert run(sandbox, code, timeout_s=5).code != 0
    assert run(sandbox, "import os\nprint(os.listdir('.'))").output == b"[]\n"


def test_memory_of_many_is_counted(sandbox):
    """Several processes together may not have more than the limit of one."""
    code = (
        "import os, time\nfor _ in range(3):\n    if not os.fork(): break\n"
        "x = b'1' * (4 * 10**8)\ntime.sleep(300)"
    )
    assert run(sandbox, code, timeout_s=120).code == -signal.SIGKILL


def test_no_process_stays(sandbox):
    """Processes that leave their parent, group and session are gone when the result is there."""
    code = (
        "import os, signal, time\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        os.write(w, str(os.getpid()).encode())\n"
        "        time.sleep(1e6)\n"
        "    os._exit(0)\n"
        "print(int(os.read(r, 100)), os.getpid())\n"
    )
    result = run(sandbox, code)
    pids = [int(pid) for pid in result.output.split()]
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


def test_no_file_stays(sandbox):
    """Deep folders, closed ones and links to elsewhere are removed, and not followed."""
    with tempfile.TemporaryDirectory() as name:
        kept = Path(name, "kept")
        kept.touch()
        code = (
            f"import os\nprint(os.getcwd(), flush=True)\nos.symlink({name!r}, 'out')\n"
            "os.mkdir('closed', 0)\nos.mkfifo('pipe')\n"
            "for _ in range(1500):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n"
        )
        result = run(sandbox, code)
        assert kept.exists()
    assert not list(Path(result.output.decode().strip()).iterdir())


def test_runs_are_different_users(sandbox):
    """As root, each run is a user whom the next run is not."""
    uids = [int(run(sandbox, "import os\nprint(os.getuid())").output) for _ in range(5)]
    assert len(set(uids)) == (5 if IS_ROOT else 1)
    assert 0 not in uids


def test_two_at_once():
    """Sandboxes side by side do not disturb each other."""

    def work(number):
        with Sandbox() as own:
            return [int(run(own, f"print({number} + {i})").output) for i in range(20)]

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        results = list(threads.map(work, [0, 100]))
    assert results == [list(range(20)), list(range(100, 120))]


def test_killed_client_leaves_nothing(tmp_path):
    """A server that is killed takes the zygote, its runs and its folder with it."""
    bomb = (
        "import os, time\nos.write(1, os.getcwd().encode())\n"
        "if not os.fork(): os.setsid()\n"
        "while True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)\n"
    )
    script = (
        "from reward_server.sandbox.sandbox import Sandbox\n"
        "sandbox = Sandbox()\n"
        "run = sandbox.open('program', stdin=b'', cpu_s=60)\n"
        f"sandbox._send(run, {{'sources': [{bomb!r}]}}, 1e9)\n"
        "import os, select\n"
        "select.select([run.output], [], [], 60)\n"
        "print(os.read(run.output, 1000).decode(), flush=True)\n"
        "input()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    folder = client.stdout.readline().strip()
    members = []

    def find():
        members[:] = [p for p in psutil.process_iter() if _works_in(p, folder)]
        return len(members) > 10

    assert eventually(find)
    client.kill()
    client.communicate()
    assert eventually(lambda: not any(_works_in(p, folder) for p in psutil.process_iter()))
    assert eventually(lambda: not Path(folder).exists())


def _works_in(process, folder):
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE and process.cwd() == folder
    return False


def test_lost_zygote_is_an_error():
    """What happens to the sandbox itself is never taken for an outcome of the code."""
    with Sandbox() as own:
        zygote, folder = run(own, "import os\nprint(os.getppid(), os.getcwd())").output.split()
        os.kill(int(zygote), signal.SIGKILL)
        with pytest.raises(SandboxError, match="zygote is gone"):
            run(own, "print(1)")
    Path(folder.decode()).rmdir()
