# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the pool with real child processes and reward functions that go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

import numpy as np
import psutil
import pytest

from reward_server.batch import RowStatus, StartError, WorkersUnavailable
from reward_server.config import PoolConfig, Probe, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from tests.integration import pools

OK, ERROR, INVALID, TIMEOUT, CRASHED, OOM = RowStatus


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Path of a tokenizer of single characters."""
    return pools.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


async def test_faults_stay_in_their_row(tokenizer):
    """Every fault has its own status and message; every other row has its reward."""
    faults = {
        "raise": (ERROR, "ZeroDivisionError: division by zero (line "),
        "base": (ERROR, "OddError: odd (line "),
        "exit": (ERROR, "SystemExit: 3"),
        "memoryerror": (OOM, "MemoryError"),
        "none": (INVALID, "returned None"),
        "nan": (INVALID, "returned nan"),
        "inf": (INVALID, "returned inf"),
        "two": (INVALID, "returned 2 values for 1 row"),
        "empty": (INVALID, "returned 0 values for 1 row"),
        "abort": (CRASHED, "SIGABRT"),
        "hardexit": (CRASHED, "exited with code 7"),
        "kill": (CRASHED, "SIGKILL"),
        "segv": (CRASHED, "SIGSEGV"),
        "sleep": (TIMEOUT, "ran longer than 0.5 s"),
        "regex": (TIMEOUT, "ran longer than 0.5 s"),
        "print": (OK, ""),
    }
    rows = [text for name in faults for text in ("good", name, "fine")]
    async with pools.running(
        tokenizer, pools.fn("faulty", timeout_s=0.5), pools.fn("length", weight=0)
    ) as pool:
        scores = await pool.score(pools.batch(rows), timeout_s=60)
    messages = {error.row: error for error in scores.errors}
    for row, text in enumerate(rows):
        status, message = faults.get(text, (OK, ""))
        assert scores.statuses[row] == status, text
        if status == OK:
            assert scores.rewards[row].tolist() == [1.0, len(text)]
            assert row not in messages
        else:
            assert np.isnan(scores.rewards[row, 0]), text
            assert message in messages[row].message, text
            assert messages[row].reward_fn == "faulty"
            assert messages[row].status == status
    # The functions after one that failed still run.
    assert scores.rewards[rows.index("raise"), 1] == len("raise")
    assert [error.row for error in scores.errors] == sorted(messages)
    assert scores.rewards.dtype == np.float64


@pytest.mark.parametrize("hang", ["sleep", "regex"])
async def test_a_hang_costs_its_limit(tokenizer, hang):
    """A batch with a hung row ends soon after the limit, in Python and in C."""
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=0.6)) as pool:
        start = time.monotonic()
        scores = await pool.score(pools.batch(["a"] * 40 + [hang] + ["b"] * 40), timeout_s=30)
        took = time.monotonic() - start
    assert 0.5 < took < 1.6
    assert [error.row for error in scores.errors] == [40]
    assert np.nansum(scores.rewards) == 80


async def test_weight_zero_failure_is_no_status(tokenizer):
    """A function that is only reported leaves NaN when it fails, and the row stays good."""
    functions = (pools.fn("faulty", weight=0), pools.fn("length"))
    async with pools.running(tokenizer, *functions) as pool:
        scores = await pool.score(pools.batch(["raise", "good"]), timeout_s=30)
    assert scores.statuses.tolist() == [OK, OK]
    np.testing.assert_array_equal(scores.rewards, [[np.nan, 5], [1, 4]])
    assert scores.errors == []


async def test_grandchildren_are_killed(tokenizer, tmp_path):
    """Processes that a function started die with it, in its session or not."""
    rows = pools.batch(["a", "b", "c"], columns={"folder": ["", str(tmp_path), ""]})
    async with pools.running(tokenizer, pools.fn("spawn", timeout_s=0.5)) as pool:
        scores = await pool.score(rows, timeout_s=30)
    assert scores.statuses.tolist() == [OK, TIMEOUT, OK]
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    for pid in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_start_timeout_kills(tokenizer):
    """A probe row that hangs stops the start, and nothing is left."""
    hung = pools.fn("faulty", probe=Probe(completion="sleep"), timeout_s=60)
    functions = (pools.fn("length"), hung)
    config = PoolConfig(slots=1, start_timeout_s=4)
    pool = Pool(RewardsConfig(functions=functions), tokenizer, config)
    with pytest.raises(StartError, match=r"'faulty' was not ready within start_timeout_s=4"):
        await pool.start()
    assert not pool._children


async def test_memory_limit(tokenizer):
    """A child above its memory is killed and its row says so."""
    limits = {"slots": 1, "max_child_rss_bytes": 400 * 2**20}
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=20), **limits) as pool:
        scores = await pool.score(pools.batch(["a", "memory", "b"]), timeout_s=30)
    assert scores.statuses.tolist() == [OK, OOM, OK]
    assert "max_child_rss_bytes" in scores.errors[0].message


async def test_row_functions_columns_and_extras(tokenizer):
    """A function of one row gets its columns, mode and step, and reports a column of its own."""
    probe = Probe(completion="x", columns={"answer": "x"})
    async with pools.running(tokenizer, pools.fn("per_row", per="row", probe=probe)) as pool:
        assert pool.reward_fns[0].required_columns == ("answer",)
        scores = await pool.score(
            pools.batch(
                ["cd", "abcd"],
                columns={"answer": ["abcd", "abcd"], "other": [1, 2]},
                completion_prefixes=["ab", ""],
                mode="eval",
                step=7,
            ),
            timeout_s=30,
        )
    assert scores.rewards.tolist() == [[1.0], [1.0]]
    assert scores.extra_columns["characters"].tolist() == [4.0, 4.0]
    assert scores.decode_s > 0
    assert scores.score_s[0] > 0


async def test_function_without_prompts(tokenizer):
    """A function gets only what it names."""
    async with pools.running(tokenizer, pools.fn("no_prompts"), slots=1) as pool:
        rows = pools.batch(["a", "b"], columns={"answer": ["a", "a"], "other": [1, 2]})
        scores = await pool.score(rows, timeout_s=30)
    assert scores.rewards.tolist() == [[1.0], [0.0]]


async def test_large_rows(tokenizer):
    """Rows larger than any socket buffer arrive whole."""
    texts = ["x" * 1_000_000, "", "y" * 2_000_000]
    async with pools.running(tokenizer, pools.fn("length"), slots=1) as pool:
        scores = await pool.score(pools.batch(texts), timeout_s=60)
    assert scores.rewards[:, 0].tolist() == [1_000_000, 0, 2_000_000]


async def test_prompts_as_ids(tokenizer):
    """Prompts that come as ids are decoded."""
    ids, lengths = pools.encode(["p", "p", "q"])
    probe = Probe(completion="x", columns={"answer": "x"})
    values = {"columns": {"answer": ["a", "b", "c"]}, "mode": "eval", "step": 7}
    rows = pools.batch(["a", "b", "c"], prompt_ids=ids, prompt_lengths=lengths, **values)
    object.__setattr__(rows, "prompts", None)
    async with pools.running(
        tokenizer, pools.fn("per_row", per="row", probe=probe), slots=1
    ) as pool:
        scores = await pool.score(rows, timeout_s=30)
    assert scores.rewards[:, 0].tolist() == [1.0, 1.0, 0.0]


async def test_async_rows_run_together(tokenizer):
    """200 rows that wait 50 ms each take far less than 200 waits."""
    async with pools.running(tokenizer, pools.fn("judge"), pools.fn("length"), slots=1) as pool:
        start = time.monotonic()
        scores = await pool.score(pools.batch(["abc"] * 200), timeout_s=30)
        took = time.monotonic() - start
    assert scores.rewards.tolist() == [[0.5, 3.0]] * 200
    assert took < 2


async def test_judges_are_not_asked_twice(tokenizer, tmp_path):
    """Rows sent again after a crash keep what their async functions gave."""
    texts = ["a", "abort", "no", "b", "kill", "c"]
    columns = {"folder": [str(tmp_path)] * len(texts), "row": list(range(len(texts)))}
    functions = (pools.fn("faulty"), pools.fn("counted_judge"))
    async with pools.running(tokenizer, *functions, slots=1) as pool:
        scores = await pool.score(pools.batch(texts, columns=columns), timeout_s=30)
    assert scores.statuses.tolist() == [OK, CRASHED, ERROR, OK, CRASHED, OK]
    np.testing.assert_array_equal(scores.rewards[:, 1], [0.25, 0.25, np.nan, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(scores.rewards[:, 0], [1, np.nan, 1, 1, np.nan, 1])
    assert [error.reward_fn for error in scores.errors] == ["faulty", "counted_judge", "faulty"]
    asked = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert asked == ["0", "1", "2", "3", "4", "5"]


async def test_async_faults_stay_in_their_row(tokenizer):
    """Async rows time out without harm to the child; a blocked loop costs only its row."""
    rows = ["a", "sleep", "raise", "stubborn", "exit", "b"] + ["c"] * 20
    async with pools.running(tokenizer, pools.fn("judge", timeout_s=0.5)) as pool:
        scores = await pool.score(pools.batch(rows), timeout_s=30)
        expected = [OK, TIMEOUT, ERROR, TIMEOUT, ERROR, OK] + [OK] * 20
        assert scores.statuses.tolist() == expected
        assert "judge said no" in scores.errors[1].message
        scores = await pool.score(pools.batch(["a", "block", "b"]), timeout_s=30)
        assert scores.statuses.tolist() == [OK, TIMEOUT, OK]


async def test_tunix_function_as_it_is(tokenizer):
    """A reward function of Tunix runs without a change."""
    function = RewardFnConfig(fn="tunix.cli.reward_fn.gsm8k:check_answer")
    texts = ["<reasoning>r</reasoning><answer>4</answer>", "<answer>4</answer>", "none"]
    async with pools.running(tokenizer, function, slots=1) as pool:
        assert pool.reward_fns[0].required_columns == ("answer",)
        scores = await pool.score(pools.batch(texts, columns={"answer": ["4"] * 3}), timeout_s=30)
    assert scores.rewards[:, 0].tolist() == [3.0, 0.0, 0.0]


async def test_trl_functions_as_they_are(tokenizer):
    """TRL's functions run without a change: chats, token ids, texts among the extra columns."""
    functions = [
        RewardFnConfig(fn="trl.rewards:think_format_reward", messages=True),
        RewardFnConfig(
            fn="trl.rewards:accuracy_reward",
            messages=True,
            probe=Probe(completion=r"\boxed{1}", columns={"solution": "$1$"}),
        ),
        RewardFnConfig(fn=f"{pools.FUNCTIONS.with_name('trl_rewards.py')}:overlong"),
    ]
    texts = ["<think>1+1</think>2", r"<think>no end \boxed{2}", r"\boxed{3} and more than 20 ids"]
    async with pools.running(tokenizer, *functions, slots=1) as pool:
        scores = await pool.score(
            pools.batch(texts, columns={"solution": ["$2$"] * 3}), timeout_s=60
        )
    assert scores.statuses.tolist() == [OK] * 3
    lengths = [-(len(text) - 20) / 10 if len(text) > 20 else 0.0 for text in texts]
    expected = [[1.0, 0.0, lengths[0]], [0.0, 1.0, lengths[1]], [0.0, 0.0, lengths[2]]]
    np.testing.assert_allclose(scores.rewards, np.clip(expected, -1, None), rtol=1e-6)
    assert not scores.extra_columns


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            pools.fn("wants_answer"),
            r"'wants_answer' failed its probe row: ValueError: .*\(line \d+ of ",
        ),
        (
            pools.fn("faulty", probe=Probe(completion="none")),
            "'faulty' failed its probe row: returned",
        ),
        (pools.fn("faulty", probe=Probe(completion="hardexit")), "its process exited with code 7"),
        (pools.fn("absent"), "'absent' cannot be loaded from .*has no function 'absent'"),
        (pools.fn("no_such_module:f"), "ModuleNotFoundError: No module named 'no_such_module'"),
        (pools.fn("length", per="row"), 'set `per = "list"`'),
        (RewardFnConfig(fn="gsm9k"), "is no built-in function"),
    ],
)
async def test_start_names_what_is_wrong(tokenizer, function, message):
    """A function that cannot score its probe row stops the start with a clear message."""
    pool = Pool(RewardsConfig(functions=(function,)), tokenizer, PoolConfig(slots=1))
    with pytest.raises(StartError, match=message):
        await pool.start()
    assert not pool._children


async def test_slow_tail_is_stolen(tokenizer):
    """Rows behind slow ones go to the child that has nothing to do."""
    probe = Probe(columns={"seconds": 0.0})
    # Cheap rows first, so that chunks are large when the slow ones come.
    seconds = [0.0] * 400 + [0.1] * 16
    async with pools.running(tokenizer, pools.fn("slow_tail", probe=probe)) as pool:
        await pool.score(pools.batch(["a"] * 600, columns={"seconds": [0.0] * 600}), timeout_s=30)
        start = time.monotonic()
        rows = pools.batch(["a"] * len(seconds), columns={"seconds": seconds})
        scores = await pool.score(rows, timeout_s=30)
        took = time.monotonic() - start
    assert scores.statuses.tolist() == [OK] * len(seconds)
    assert took < 1.4


async def test_timeout_and_cancellation_drop_rows(tokenizer):
    """A call that gives up frees the pool for the next one."""
    probe = Probe(columns={"seconds": 0.0})
    rows = pools.batch(["a"] * 100, columns={"seconds": [0.1] * 100})
    async with pools.running(tokenizer, pools.fn("slow_tail", probe=probe)) as pool:
        with pytest.raises(TimeoutError, match=r"of 100 rows had no reward after 0\.2 s"):
            await pool.score(rows, timeout_s=0.2)
        task = asyncio.create_task(pool.score(rows, timeout_s=30))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        quick = pools.batch(["a"], columns={"seconds": [0.0]})
        scores = await pool.score(quick, timeout_s=10)
        assert scores.statuses.tolist() == [OK]


async def test_waiting_call_is_logged(tokenizer, monkeypatch, caplog):
    """A call that waits says which rows it waits for."""
    monkeypatch.setattr("reward_server.pool._REPORT_S", 0.2)
    caplog.set_level("INFO", logger="reward_server")
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=0.6), slots=1) as pool:
        await pool.score(pools.batch(["a", "sleep", "b"]), timeout_s=30)
    assert "rows=3 missing=" in caplog.text
    assert "running_row_ids=[1001]" in caplog.text
    assert "child lost" in caplog.text


async def test_lost_idle_child_is_replaced(tokenizer):
    """A child that dies while it has nothing to do costs no row."""
    async with pools.running(tokenizer, pools.fn("length"), slots=1, outage_s=300) as pool:
        for child in pool._children:
            os.kill(child.pid, signal.SIGKILL)
        scores = await pool.score(pools.batch(["abc"] * 5), timeout_s=30)
    assert scores.rewards[:, 0].tolist() == [3.0] * 5


async def test_calls_at_once_keep_their_rows(tokenizer):
    """Concurrent calls of different sizes get their own rewards in their own order."""
    rng = np.random.default_rng(0)
    sizes = [0, 1, 7, 300, 1000]
    texts = [["x" * int(n) for n in rng.integers(0, 30, size)] for size in sizes]
    async with pools.running(tokenizer, pools.fn("length")) as pool:
        results = await asyncio.gather(*(pool.score(pools.batch(t), timeout_s=30) for t in texts))
    for rows, scores in zip(texts, results, strict=True):
        assert scores.rewards[:, 0].tolist() == [len(text) for text in rows]


async def test_killed_parent_leaves_no_child(tokenizer, tmp_path):
    """Children die with a server that is killed, even in a function that hangs in C."""
    script = tmp_path / "server.py"
    script.write_text(
        "import asyncio, sys\n"
        "import numpy as np\n"
        "from reward_server.batch import Batch\n"
        "from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig\n"
        "from reward_server.pool import Pool\n"
        "async def main():\n"
        "    rewards = RewardsConfig(functions=(RewardFnConfig(fn=sys.argv[1], timeout_s=60),))\n"
        "    pool = Pool(rewards, sys.argv[2], PoolConfig(slots=1))\n"
        "    await pool.start()\n"
        "    print('ready', flush=True)\n"
        "    ids = np.asarray([int(i) for i in sys.argv[3].split()], np.int32)\n"
        "    batch = Batch(completion_ids=ids, completion_lengths=np.asarray([len(ids)]),\n"
        "                  prompts=[''], columns={}, row_ids=[0])\n"
        "    await pool.score(batch, timeout_s=60)\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )
    ids = " ".join(str(i) for i in pools.encode(["regex"])[0])
    root = pools.FUNCTIONS.parents[2]
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), f"{pools.FUNCTIONS}:faulty", str(tokenizer), ids),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert await server.stdout.readline() == b"ready\n"
    await asyncio.sleep(0.3)
    children = psutil.Process(server.pid).children()
    assert children
    server.kill()
    await server.wait()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


async def test_children_are_recycled(tokenizer):
    """A child is replaced after its number of rows."""
    async with pools.running(tokenizer, pools.fn("pid"), slots=1, rows_per_child=20) as pool:
        first = await pool.score(pools.batch(["a"] * 100), timeout_s=30)
        for _ in range(100):
            if not pool._children.starting and len(pool._children) == 2:
                break
            await asyncio.sleep(0.05)
        second = await pool.score(pools.batch(["a"] * 100), timeout_s=30)
    pids = {int(p) for scores in (first, second) for p in scores.rewards[:, 0]}
    assert len(pids) >= 2
    assert os.getpid() not in pids


async def test_close_ends_calls(tokenizer):
    """Closing ends waiting calls and refuses new ones."""
    async with pools.running(tokenizer, pools.fn("faulty", timeout_s=60)) as pool:
        task = asyncio.create_task(pool.score(pools.batch(["sleep"]), timeout_s=30))
        await asyncio.sleep(0.2)
        await pool.close()
        with pytest.raises(WorkersUnavailable):
            await task
        with pytest.raises(WorkersUnavailable):
            await pool.score(pools.batch(["a"]), timeout_s=1)


async def test_rows_are_routed_by_a_column(tokenizer):
    """Each row has the values of its functions; an unknown source is that row's error."""
    functions = (
        pools.fn("length", sources=("short",)),
        pools.fn("scaled", sources=("long", "short"), params={"factor": 10.0}),
    )
    rewards = RewardsConfig(functions=functions, route_column="source")
    pool = Pool(rewards, tokenizer, PoolConfig(slots=1))
    await pool.start()
    try:
        assert [info.required_columns for info in pool.reward_fns] == [("source",), ("source",)]
        columns = {"source": ["short", "long", "none"]}
        scores = await pool.score(pools.batch(["a", "bb", "ccc"], columns=columns), timeout_s=30)
    finally:
        await pool.close()
    assert scores.statuses.tolist() == [OK, OK, ERROR]
    np.testing.assert_array_equal(scores.rewards, [[1, 10], [np.nan, 20], [np.nan, np.nan]])
    assert scores.errors[0].message == "`source` must be one of ['long', 'short'], got 'none'"
