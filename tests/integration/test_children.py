# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools whose children can't start, hang on the way or die: they say so and recover."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import os
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from reward_server import children, shared_memory
from reward_server.batch import RowStatus, StartError, WorkersUnavailable
from reward_server.child_process import ChildProcess, ChildSpec
from reward_server.config import PoolConfig, Probe, RewardsConfig
from reward_server.pool import Pool
from tests.integration import pools, service

OK, _, _, TIMEOUT, _, _ = RowStatus
LOADS = """
import os, signal, time
from pathlib import Path

cause = Path(__file__).with_name("cause")
cause = cause.read_text() if cause.exists() else ""
if cause == "raise":
    raise OSError("stale file handle")
if cause == "exit":
    os._exit(7)
if cause == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)

def f(completions, **_):
    return [float(len(completions[0]))]
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Path of a tokenizer of single characters."""
    return pools.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def quick(monkeypatch):
    """A pool tries again soon."""
    monkeypatch.setattr(children, "_MAX_BACKOFF_S", 0.2)


def write(folder, source, name="loads"):
    """A file of reward functions, and the name of its function f."""
    (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    return f"{folder}/{name}.py:f"


async def lose_all(pool, reason):
    """Ends every child, and waits until others fail to start for a reason."""
    await service.happened(lambda: not pool.children["starting"])
    for child in pool._children:
        child.kill()
    await service.happened(lambda: reason in pool.problem)


def descriptors():
    """What the open descriptors of this process are."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found.append(str(link.readlink()).partition(":")[0])
    return sorted(found)


@pytest.mark.parametrize("cause", ["raise", "exit", "segv"])
async def test_functions_that_cannot_be_loaded_any_more(tokenizer, tmp_path, quick, caplog, cause):
    """The pool has no slots and says why; rows wait; when the cause is gone they are scored."""
    reasons = {"raise": "stale file handle", "exit": "exited with code 7", "segv": "SIGSEGV"}
    async with pools.running(
        tokenizer, pools.fn(write(tmp_path, LOADS)), slots=2, outage_s=300
    ) as pool:
        assert (pool.slots, pool.problem) == (2, "")
        (tmp_path / "cause").write_text(cause, encoding="ascii")
        await lose_all(pool, reasons[cause])
        assert pool.slots == 0
        assert "'f' cannot be loaded" in pool.problem
        pool._children._failures = 2000  # hours later
        call = asyncio.create_task(pool.score(pools.batch(["ab"] * 5), timeout_s=60))
        await service.happened(lambda: pool._children._failures > 2000)
        assert not call.done()
        (tmp_path / "cause").unlink()
        assert (await call).rewards[:, 0].tolist() == [2.0] * 5
        await service.happened(lambda: pool.children == {"idle": 3, "busy": 0, "starting": 0})
        assert (pool.slots, pool.problem) == (2, "")
    assert "child failed to start, next try in" in caplog.text
    assert reasons[cause] in caplog.text


async def test_rows_that_others_can_have(tokenizer, tmp_path, quick):
    """A worker's calls end at once, under way or new, and say why; later ones are scored."""
    limits = {"slots": 1, "outage_s": 0}
    async with pools.running(tokenizer, pools.fn(write(tmp_path, LOADS)), **limits) as pool:
        (tmp_path / "cause").write_text("raise", encoding="ascii")
        await lose_all(pool, "stale")
        for _ in range(2):
            with pytest.raises(WorkersUnavailable, match="stale file handle"):
                await pool.score(pools.batch(["ab"]), timeout_s=60)
        (tmp_path / "cause").unlink()
        await service.happened(lambda: not pool.problem)
        assert (await pool.score(pools.batch(["ab"]), timeout_s=60)).rewards.tolist() == [[2.0]]


async def test_an_outage_ends_calls_with_its_reason(tokenizer, tmp_path, quick):
    """Rows wait for a while; then the caller hears why, long before its deadline."""
    limits = {"slots": 1, "outage_s": 0.5}
    async with pools.running(tokenizer, pools.fn(write(tmp_path, LOADS)), **limits) as pool:
        (tmp_path / "cause").write_text("raise", encoding="ascii")
        call = asyncio.create_task(pool.score(pools.batch(["ab"] * 50_000), timeout_s=600))
        await asyncio.sleep(0.1)
        await lose_all(pool, "stale")
        with pytest.raises(WorkersUnavailable, match=r"no child process can score rows: .*stale"):
            await call
        assert (pool.rows_missing, pool.rows_queued) == (0, 0)


async def test_no_descriptors_left(tokenizer, tmp_path, quick, monkeypatch):
    """While none can be opened no child can be started; nothing is left of those that failed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limits = {"slots": 1, "outage_s": 300}
    async with pools.running(tokenizer, pools.fn("length"), **limits) as pool:
        gc.collect()  # what other tests have left is not to be closed in between
        open_before = descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with open(os.devnull, "rb") as lowest_free:  # noqa: ASYNC230, PTH123
            number = lowest_free.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
        try:
            for child in list(pool._children):
                child.kill()
            del child
            await service.happened(lambda: pool._children._failures > 3)
            reason = pool.problem
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "Too many open files" in reason
        assert (await pool.score(pools.batch(["ab"]), timeout_s=60)).rewards.tolist() == [[2.0]]
        await service.happened(lambda: pool.children == {"idle": 2, "busy": 0, "starting": 0})
        gc.collect()
        assert not collections.Counter(descriptors()) - collections.Counter(open_before)
        assert len(list(tmp_path.iterdir())) == 2


async def test_no_folder_left(tokenizer, tmp_path, monkeypatch):
    """A child for which not one descriptor is left leaves no folder either."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rewards = RewardsConfig(functions=(pools.fn("length"),))
    spec = ChildSpec(
        rewards=rewards,
        tokenizer_path=str(tokenizer),
        max_rows=1,
        max_async_rows=1,
        max_data_bytes=2**30,
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull, "rb") as lowest_free:  # noqa: ASYNC230, PTH123
        number = lowest_free.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            ChildProcess(spec, on_frame=print, on_exit=print)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


NO_PROCESSES = """
import asyncio, logging, os, resource, sys
from tests.integration import pools, service
from reward_server import children
children._MAX_BACKOFF_S = 0.2
logging.basicConfig(level="INFO")

async def main():
    async with pools.running(sys.argv[1], pools.fn("length"), slots=1, outage_s=300) as pool:
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        for child in pool._children:
            child.kill()
        await service.happened(lambda: pool._children._failures > 3)
        print(pool.slots, pool.problem)
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        scores = await pool.score(pools.batch(["ab"]), timeout_s=60)
        print(scores.rewards.tolist())
        await service.happened(lambda: pool.children["idle"] == 2)

asyncio.run(main())
"""


def test_no_processes_left(tokenizer, tmp_path):
    """A user who may start no process or thread: the same."""
    prefix = ()
    if not os.getuid():
        # The limit does not hold for root, whose files the interpreter may be.
        more = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *more)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", NO_PROCESSES, str(tokenizer)],
        cwd=service.ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, scored = done.stdout.splitlines()
    assert told.startswith("0 a child process cannot be started: ")
    assert "Resource temporarily unavailable" in told
    assert scored == "[[2.0]]"
    assert not list(tmp_path.glob("reward-child-*"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("while True: pass", r"'f' hung on its probe row for 1 s \(line 3 of hangs.py\)"),
        (
            "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
            r"'f' hung on its probe row for 1 s \(line 3 of hangs.py\)",
        ),
        (
            "import ctypes; ctypes.string_at(0)",
            r"'f' crashed on its probe row: .* was killed by SIGSEGV \(line 3 of hangs.py\)",
        ),
        ("raise Odd", r"'f' hung on its probe row for 1 s \(line 6 of hangs.py\)"),
        ("return [Odd()]", r"'f' hung on its probe row for 1 s \(line 8 of hangs.py\)"),
    ],
)
async def test_probe_rows_have_a_clock(tokenizer, tmp_path, monkeypatch, body, message):
    """A probe row that hangs or crashes stops the start soon, and the message names the line."""
    monkeypatch.setattr(children, "_LEAST_PROBE_S", 1.0)
    source = f"""
    def f(completions, **_):
        {body}
    class Odd(Exception):
        def __str__(self):
            while True: pass
        def __float__(self):
            while True: pass
    """
    function = pools.fn(write(tmp_path, source, "hangs"), timeout_s=0.5)
    pool = Pool(RewardsConfig(functions=(function,)), tokenizer, PoolConfig(slots=1))
    with pytest.raises(StartError, match=message):
        await asyncio.wait_for(pool.start(), 60)
    assert not pool._children


async def test_an_import_that_hangs(tokenizer, tmp_path, monkeypatch, caplog):
    """It is said what is loaded while it takes long, and in the end where it hung."""
    monkeypatch.setattr(children, "NOTICE_S", 0.3)
    caplog.set_level("INFO", logger="reward_server")
    function = pools.fn(write(tmp_path, "\nwhile True: pass\n", "never"))
    config = PoolConfig(slots=1, start_timeout_s=4)
    pool = Pool(RewardsConfig(functions=(function,)), tokenizer, config)
    with pytest.raises(
        StartError,
        match=r"'f' cannot be loaded: its process was not ready within start_timeout_s=4"
        r" \(line 2 of never.py\)",
    ):
        await pool.start()
    assert "children starting wait_s=" in caplog.text
    assert "ready=0 of=1: it loads 'f'" in caplog.text


HANGS = """
class Hangs(Exception):
    def __str__(self):
        while True: pass
    def __float__(self):
        while True: pass
    def __len__(self):
        while True: pass
    def __getitem__(self, index):
        while True: pass
    def __del__(self):
        while getattr(self, "dies", False): pass

class Late:
    dies = True
    def __del__(self):
        while True: pass

class Length:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        while True: pass

def raises():
    raise Hangs()

def generates():
    yield 1.0
    while True: pass

KINDS = {
    "str": raises,
    "float": lambda: [Hangs()],
    "len": lambda: Hangs(),
    "item": lambda: Length(),
    "del": lambda: (Late(), [1.0])[1],
    "gone": lambda: Late(),
    "generator": lambda: [float(x) for x in generates()],
}

def f(completions, **_):
    return KINDS[completions[0]]() if completions[0] in KINDS else [1.0] * len(completions)

g = f
"""


@pytest.mark.parametrize("per", ["list", "group"])
async def test_a_clock_runs_whenever_a_users_code_runs(tokenizer, tmp_path, per):
    """Whatever of a user's code hangs costs its row, and its child, and nothing else."""
    kinds = ["str", "float", "len", "item", "del", "gone", "generator"]
    texts = [text for kind in kinds for text in ("x", kind)]
    function = pools.fn(write(tmp_path, HANGS, "hangs"), timeout_s=0.5, per=per)
    groups = np.arange(len(texts)) if per == "group" else None
    async with pools.running(tokenizer, function, slots=2) as pool:
        scores = await pool.score(pools.batch(texts, group_ids=groups), timeout_s=60)
        again = await pool.score(pools.batch(["x"]), timeout_s=60)
    assert scores.statuses.tolist() == [OK, TIMEOUT] * len(kinds)
    assert again.statuses.tolist() == [OK]
    for error in scores.errors:
        # A busy machine may not write the line in time.
        assert re.fullmatch(r"ran longer than 0\.5 s( \(line \d+ of hangs\.py\))?", error.message)


async def test_rows_of_a_dropped_call_are_not_run(tokenizer, tmp_path):
    """A child stops after the row at hand, or group, when nobody waits for its chunk."""
    source = """
    import time
    from pathlib import Path
    def f(completions, folder, row, **_):
        Path(folder[0], str(row[0])).touch()
        time.sleep(0.2)
        return [1.0] * len(completions)
    """
    function = write(tmp_path, source)
    probe = {"completion": "x", "columns": {"folder": str(tmp_path), "row": "probe"}}
    for per in ("list", "group"):
        folder = tmp_path / per
        folder.mkdir()
        columns = {"folder": [str(folder)] * 16, "row": list(range(16))}
        rows = pools.batch(["a"] * 16, columns=columns, group_ids=np.arange(16))
        entry = pools.fn(function, per=per, probe=Probe(**probe))
        async with pools.running(tokenizer, entry, slots=1) as pool:
            with pytest.raises(TimeoutError):
                await pool.score(rows, timeout_s=0.5)
            await service.happened(lambda pool=pool: pool.children["idle"] == 2)
        assert len(list(folder.iterdir())) < 8


async def test_a_judge_is_not_asked_for_a_dropped_call(tokenizer, tmp_path):
    """Async functions under way are cancelled, those that have not begun never run."""
    source = """
    import asyncio
    from pathlib import Path
    async def f(completions, folder, row, **_):
        Path(folder[0], str(row[0])).touch()
        try:
            await asyncio.sleep(3 if row[0] != "probe" else 0)
        except asyncio.CancelledError:
            Path(folder[0], f"{row[0]}-cancelled").touch()
            raise
        return [1.0]
    """
    probe = Probe(completion="x", columns={"folder": str(tmp_path), "row": "probe"})
    folder = tmp_path / "asked"
    folder.mkdir()
    columns = {"folder": [str(folder)] * 20, "row": list(range(20))}
    limits = {"slots": 1, "max_async_rows": 4}
    function = pools.fn(write(tmp_path, source), probe=probe)
    async with pools.running(tokenizer, function, **limits) as pool:
        with pytest.raises(TimeoutError):
            await pool.score(pools.batch(["a"] * 20, columns=columns), timeout_s=0.5)
        await service.happened(lambda: pool.children["idle"] == 2)
    names = {path.name for path in folder.iterdir()}
    assert {f"{row}-cancelled" for row in range(4)} <= names
    assert len(names) == 8


async def test_a_child_that_is_replaced_gets_no_rows(tokenizer, tmp_path):
    """An idle child above its memory is out of the way before it dies."""
    source = """
    held = []
    def f(completions, **_):
        if completions[0] == "leak":
            held.append(bytearray(300 << 20))
        return [1.0]
    """
    limits = {"slots": 1, "max_child_rss_bytes": 250 * 2**20}
    async with pools.running(tokenizer, pools.fn(write(tmp_path, source)), **limits) as pool:
        for _ in range(3):
            leaky = await pool.score(pools.batch(["leak"]), timeout_s=60)
            for child in pool._children:
                pool._watch._check_memory(child)
            honest = await pool.score(pools.batch(["honest"]), timeout_s=60)
            assert (leaky.statuses.tolist(), honest.statuses.tolist()) == ([OK], [OK])
            await service.happened(lambda: pool.children["idle"] == 2)


async def test_process_pools_in_a_file(tokenizer, tmp_path):
    """Functions of a file can be sent to processes, in each way in which Python starts those."""
    source = """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from beside import double

    class Text:
        def __init__(self, text):
            self.text = text

    def count(text):
        return double(len(text.text))

    def f(completions, **_):
        kind, _, how = completions[0].partition(" ")
        context = multiprocessing.get_context(kind)
        if how == "executor":
            with ProcessPoolExecutor(1, context) as pool:
                return list(pool.map(count, [Text(completions[0])]))
        with context.Pool(1) as pool:
            return pool.map(count, [Text(completions[0])])
    """
    write(tmp_path, "def double(x): return 2 * x", "beside")
    # A name that a package has already, and that is no identifier.
    path = write(tmp_path, source, "json.pools")
    function = pools.fn(path, timeout_s=60, probe=Probe(completion="fork executor"))
    kinds = [f"{kind} {how}" for kind in ("spawn", "forkserver") for how in ("executor", "pool")]
    async with pools.running(tokenizer, function, slots=1) as pool:
        scores = await pool.score(pools.batch(kinds), timeout_s=120)
    assert scores.errors == []
    assert scores.rewards[:, 0].tolist() == [2.0 * len(kind) for kind in kinds]


async def test_children_that_do_not_last(tokenizer, tmp_path):
    """Functions that end their process soon after they are loaded stop the start."""
    source = """
    import os, threading, time
    threading.Thread(target=lambda: (time.sleep(0.3), os._exit(9)), daemon=True).start()
    def f(completions, **_):
        return [1.0]
    """
    function = pools.fn(write(tmp_path, source))
    pool = Pool(RewardsConfig(functions=(function,)), tokenizer, PoolConfig(slots=40))
    started = time.monotonic()
    with pytest.raises(StartError, match=r"children do not last: .* exited with code 9"):
        await pool.start()
    assert time.monotonic() - started < 60
    assert not pool._children


def test_the_clock_shows_what_runs():
    """The parent reads which function runs and since when, and nothing once it has ended."""
    header = memoryview(bytearray(8 * 16)).cast("q")
    clock = shared_memory.Clock(header)
    with clock(3):
        assert header[shared_memory.Word.FUNCTION] == 3
        assert header[shared_memory.Word.STARTED] == clock.started_ns > 0
        assert not shared_memory.is_late(header, [0, 0, 0, 1000])
        assert shared_memory.is_late(header, [1000, 1000, 1000, 0])
    assert header[shared_memory.Word.STARTED] == 0
    assert clock.took_ns > 0
    assert not shared_memory.is_late(header, [0, 0, 0, 0])
