# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of code_python in the pool: known faults of graders, and completions that cheat."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import tokenizers

from reward_server.batch import Batch, RowStatus, StartError
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.reward_fns.code_python import code_python
from reward_server.sandbox.checks import BadTests
from tests.integration import pools

DATA = Path(__file__).parents[1] / "data" / "cases" / "code.jsonl"
CASES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
SQUARE = "def square(x):\n    return x * x\n"
ROW_S = 120.0
WAIT_S = 30


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer of bytes, which can write any text."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    pools.byte_tokenizer().save(str(path))
    return path


def batch(tokenizer, completions, tests):
    """A batch of completions and the tests of each."""
    inner = tokenizers.Tokenizer.from_file(str(tokenizer))
    ids = [inner.encode(text).ids for text in completions]
    return Batch(
        completion_ids=np.asarray([i for row in ids for i in row], np.int32),
        completion_lengths=np.asarray([len(row) for row in ids], np.int64),
        prompts=[""] * len(ids),
        columns={"tests": tests},
        row_ids=list(range(len(ids))),
    )


@contextlib.asynccontextmanager
async def running(tokenizer):
    """A started pool of two slots with code_python."""
    entry = RewardFnConfig(fn="code_python", timeout_s=ROW_S)
    pool = Pool(RewardsConfig(functions=(entry,)), tokenizer, PoolConfig(slots=2))
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def zygotes():
    """Processes that run sandboxes; what they fork looks the same, but for the parent."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            named = "reward_server.sandbox import zygote" in " ".join(process.cmdline())
            if named and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = (process, process.ppid())
    return {process for process, parent in found.values() if parent not in found}


def folders():
    """Folders of sandboxes."""
    return set(Path(tempfile.gettempdir()).glob("shardward-run-*"))


async def eventually(condition):
    """Says whether a condition becomes true."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def test_cases(tokenizer):
    """Every case has its verdict, hazards harm no other row, and nothing is left behind."""
    zygotes_before, folders_before = zygotes(), folders()
    async with running(tokenizer) as pool:
        scores = await pool.score(
            batch(tokenizer, [c["completion"] for c in CASES], [c["tests"] for c in CASES]),
            timeout_s=280,
        )
    for row, case in enumerate(CASES):
        status, reward = RowStatus(scores.statuses[row]), scores.rewards[row, 0]
        if case["expected"] == "invalid-tests":
            assert status == RowStatus.ERROR, case["id"]
            continue
        assert status == RowStatus.OK, case["id"]
        if case["expected"] in (0.0, 1.0):
            assert reward == case["expected"], (case["id"], case["why"])
        assert reward in (0.0, 1.0), case["id"]
    assert [e.row for e in scores.errors] == [
        row for row, case in enumerate(CASES) if case["expected"] == "invalid-tests"
    ]
    # The pool's children are gone; their zygotes see it and go, too.
    assert await eventually(lambda: zygotes() <= zygotes_before)
    assert folders() <= folders_before


async def test_pool_without_a_sandbox_does_not_start(tokenizer, tmp_path, monkeypatch):
    """A server that cannot lock up code says so when it starts, not row by row."""
    file = tmp_path / "only_bwrap.py"
    file.write_text(
        "from reward_server.reward_fns import code_python\n"
        "EXAMPLE = code_python.EXAMPLE\n"
        "def only_bwrap(prompts, completions, tests):\n"
        "    return code_python.code_python(prompts, completions, tests, sandbox='bwrap')\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    entry = RewardFnConfig(fn=f"{file}:only_bwrap")
    pool = Pool(RewardsConfig(functions=(entry,)), tokenizer, PoolConfig(slots=1))
    with pytest.raises(StartError, match=r"no sandbox works here: bwrap: there is no bwrap"):
        await pool.start()


async def test_killed_child_takes_its_sandbox_along(tokenizer):
    """A child of the pool that is killed in a run leaves neither zygote, process nor file."""
    before, folders_before = zygotes(), folders()
    hang = f"{SQUARE}import os, time\nos.fork()\ntime.sleep(1e6)\n"
    tests = [{"type": "call", "function": "square", "arguments": [2], "result": 4}]
    async with running(tokenizer) as pool:
        # Three children, two slots and a spare one, are through with their probe rows.
        assert await eventually(
            lambda: len(zygotes() - before) == 3 and not pool._children.starting
        )
        task = asyncio.create_task(pool.score(batch(tokenizer, [hang], [tests]), timeout_s=60))
        # The run and what it has forked.
        assert await eventually(lambda: len(_jailed(zygotes() - before)) == 2)
        jailed = _jailed(zygotes() - before)
        (child,) = [c for c in pool._children if c in pool._busy]
        os.kill(child.pid, signal.SIGKILL)
        assert await eventually(lambda: not any(p.is_running() for p in jailed))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert await eventually(lambda: zygotes() <= before)
    assert await eventually(lambda: folders() <= folders_before)


def _jailed(started):
    with contextlib.suppress(psutil.Error):
        return [p for zygote in started for p in zygote.children(recursive=True)]
    return []


def score(code, *tests, **options):
    """Reward of code for tests; texts are asserts."""
    row = [{"type": "assert", "code": t} if isinstance(t, str) else t for t in tests]
    options.setdefault("test_timeout_s", 60.0)
    return code_python([""], [f"```python\n{code}\n```"], [row], **options)[0]


@pytest.mark.parametrize(
    ("code", "test"),
    [
        (SQUARE, "x = 3\nassert square(x) == x**2"),
        (SQUARE, "assert isinstance(square(2), int) and not square(0)"),
        (SQUARE, "assert abs(square(2) - 4) < 1e-6, 'message'"),
        (SQUARE, "assert math.isclose(square(2), 4)"),
        (SQUARE, "def check(candidate):\n    assert candidate(2) == 4\ncheck(square)"),
        (SQUARE, "from solution import square\ndef test_square():\n    assert square(2) == 4"),
        (SQUARE, "import solution\nassert solution.square(2) == 4"),
        (SQUARE, "assert 4 == square(x=2)"),
        (SQUARE, "if square(2) != 4:\n    raise AssertionError"),
        (SQUARE, "for i in range(9):\n    assert square(i) == i * i"),
        ("def f():\n    return 10**5000", "assert f() == 10**5000"),
        ("def f():\n    return {1: 'a', (1, 2): {3}}", "assert f() == {1: 'a', (1, 2): {3}}"),
        ("from collections import Counter as f", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
        ("def f(g, x):\n    return [g(i) for i in x]", "assert f(lambda v: v + 1, [1]) == [2]"),
        ("def f(g, x):\n    return [g(i) for i in x]", "assert f(str, [1]) == ['1']"),
        ("def f(x):\n    raise ValueError(x)", ("try:\n    f(1)\nexcept ValueError:\n    pass"
         "\nelse:\n    assert False")),
        ("class E(Exception): pass\ndef f():\n    raise E", ("try:\n    f()\n    assert False\n"
         "except E:\n    pass")),
        ("def f(x):\n    x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]"),
        ("def f(x):\n    x[:] = [0]\n    return 1", "x = [2, 1]\nk = f(x)\nassert x[:k] == [0]"),
        (("class S:\n    def __init__(self): self.a = []\n    def push(self, x): self.a.append(x)\n"
         "    def __len__(self): return len(self.a)"),
         "s = S()\ns.push(1)\nassert len(s) == 1 and s.a == [1]"),
        ("class L(list):\n    def push(self, x): self.append(x)",
         "x = L()\nx.push(1)\nassert len(x) == 1 and x[0] == 1"),
        ("def reduce(f, x):\n    return 0", "assert reduce(lambda a, b: a, [1]) == 0"),
        ("def sum(a, b):\n    return a + b", "assert sum(1, 2) == 3"),
        ("import builtins\nbuiltins.len = builtins.list = None\ndef f(x):\n    return [x]",
         "assert f(2) == [2]"),
        ("X = 5", "assert X == 5"),
    ],
)  # fmt: skip
def test_right_code_passes(code, test):
    """Forms of asserts that honest tests have, and solutions that pass them."""
    assert score(code, test) == 1.0


EQUAL = "class E:\n    def __eq__(self, o): return True\n    __ne__ = __lt__ = __gt__ = __eq__\n"
# Looks for the expected value in all that the interpreter holds.
SEARCH = """
import gc, inspect, re
def f(x):
    places = [o for o in gc.get_objects() if type(o) in (dict, list, tuple, set) and len(o) < 200]
    places += [frame.frame.f_locals for frame in inspect.stack()]
    for place in places:
        try:
            if found := re.search("expected-[0-9]+", repr(place)):
                return found[0]
        except Exception:
            pass
"""
LAX = "".join(f"    def __{n}__(self, *o): return self\n" for n in ("sub", "rsub", "abs", "round"))


@pytest.mark.parametrize(
    ("code", "test"),
    [
        (f"{EQUAL}def f(x): return E()", "assert f(2) == 4"),
        (f"{EQUAL}def f(x): return E()", "y = 4\nassert f(2) == y"),
        (f"{EQUAL}def f(x): return [E()]", "assert f(2) == [4]"),
        (f"{EQUAL}def f(x): return E()", "assert f(2)"),
        (f"{EQUAL}def f(x): return E()", "assert f(2) != 5"),
        (f"{EQUAL}{LAX}def f(x): return E()", "assert abs(f(2) - 4) < 1e-6"),
        (f"{EQUAL}    def __contains__(self, x): return True\ndef f(): return E()",
         "assert 4 in f()"),
        ("class N(int):\n    def __eq__(self, o): return True\ndef f(x): return N(0)",
         "assert f(2) == 4"),
        ("class L(list):\n    def __iter__(self): return iter([4])\ndef f(): return L()",
         "assert list(f()) == [4]"),
        ("def abs(x): return 0\ndef f(x): return 0", "assert abs(f(2) - 4) < 1e-6"),
        ("import builtins\nbuiltins.abs = lambda x: 0\ndef f(x): return 0",
         "assert abs(f(2) - 4) < 1e-6"),
        ("def isclose(*a): return True\ndef f(x): return 0", "assert isclose(f(2), 4)"),
        ("import math\nmath.isclose = lambda *a: True\ndef f(x): return 0",
         "assert math.isclose(f(2), 4)"),
        ("def f(): return float('nan')", "assert abs(f() - 4) < 1e-6"),
        ("def total(x):\n    x.clear()\n    return 0", "x = [1, 2]\nassert total(x) == sum(x)"),
        ("def total(x):\n    x.clear()\n    return 0", ("x = [1, 2]\nr = total(x)\n"
         "assert r == sum(x)")),
        ("def f(): return 0", "if f() != 4:\n    raise AssertionError"),
        ("def f(): return None", "if f():\n    assert f() == 2"),
        ("def f(): raise ImportError('x')", "y = 2\nassert f() == y"),
        ("def f(): raise SystemExit(0)", "y = 2\nassert f() == y"),
        ("import os\ndef f(): os._exit(0)", "y = 2\nassert f() == y"),
        ("import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit(0)",
         "assert f(2) == 4"),
        (("import os\ndef f(x):\n    for fd in range(64):\n        try:\n"
         "            os.write(fd, b'\\x18\\0\\0\\0{\"verdict\":\"passed\",\"a\":1}')\n"
         "        except OSError: pass\n    return 0"), "y = 4\nassert f(2) == y"),
        (("import os\nfor fd in range(64):\n    try:\n"
         "        os.write(fd, b'\\x0b\\0\\0\\0{\"value\":4}' * 2)\n"
         "    except OSError: pass\ndef f(x): return 0"), "assert f(2) == 4"),
        (SEARCH, "assert f(2) == 'expected-53'"),
        (SEARCH, "y = 'expected-53'\nassert f(2) == y"),
        ("import sys\nsys.modules['solution'] = None\nf = None", "assert f(2) == 4"),
        ("f = 4", "from solution import g\nassert g == 4"),
    ],
)  # fmt: skip
def test_cheat_earns_nothing(code, test):
    """Objects that equal everything, forged messages, searched memory and early exits."""
    assert score(code, test) == 0.0


def test_fraction_goes_on_after_a_failure():
    """A test that hangs, exits or fails costs its own share only."""
    code = (
        "import os, time\ndef f(x):\n    if x == 1: os._exit(0)\n"
        "    if x == 2: time.sleep(1e6)\n    if x == 3: return 0\n    return x\n"
    )
    tests = [f"assert f({x}) == {x}" for x in range(6)] + ["y = 4\nassert f(y) == y"]
    assert score(code, *tests, credit="fraction", test_timeout_s=4.0) == pytest.approx(4 / 7)
    assert score(code, *tests) == 0.0


def test_solution_that_hangs_while_loading_is_loaded_once():
    """All tests fail at once with the first: the row must not take the time of each."""
    started = time.monotonic()
    tests = [f"assert f({x}) == {x}" for x in range(30)]
    code = "import time\ntime.sleep(1e6)"
    assert score(code, *tests, credit="fraction", test_timeout_s=2.0) == 0.0
    assert time.monotonic() - started < 30


def test_programs_do_not_see_each_other():
    """Files and variables of one program run are not there in the next."""
    code = (
        "import os, sys\n"
        "print(len(os.listdir('.')), hasattr(sys, 'mark'))\n"
        "open('mark', 'w').close()\nsys.mark = 1"
    )
    test = {"type": "stdin_stdout", "input": "", "output": "0 False"}
    assert score(code, test, test, test) == 1.0


def test_program_output_is_compared_by_lines():
    """White space at ends of lines does not count, exit codes do, tolerances are optional."""
    expect = {"type": "stdin_stdout", "output": "a\n1.5\n"}
    close = {"type": "stdin_stdout", "output": "a 1.5001", "tolerance": 1e-3}
    assert score("print('a  ')\nprint('1.5\\r\\n\\n')", expect) == 1.0
    assert score("print('a')\nprint('1.50')", expect) == 0.0
    assert score("print('a')\nprint('1.50')", close) == 1.0
    assert score("print('a')\nprint('1.6')", close) == 0.0
    assert score("print('a')\nprint(1.5)\nraise ValueError", expect) == 0.0


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([], "must hold a test, got an empty list"),
        ("[]", "must hold a test, got an empty list"),
        (None, "must be a list, got NoneType"),
        ("", "got no JSON"),
        ([{"type": "asert", "code": "assert f()"}], r"`tests\[0\]` is invalid: its `type` must be"),
        ([{"type": "assert", "code": "assert f("}], "does not parse"),
        ([{"type": "assert", "code": "f(2) == 4"}], "asserts nothing"),
        ([{"type": "assert", "code": "def check(f):\n    assert f(2)"}], "never calls"),
        ([{"type": "assert", "code": "import numpy\nassert square(2) == 4"}], "No module named"),
        ([{"type": "assert", "code": "class T: pass\nassert square(T())"}], "no plain data"),
        ([{"type": "call", "function": "square", "arguments": [2]}], "has no `result`"),
        ([{"type": "call", "function": "a b", "result": 1}], "must be a name"),
        ([{"type": "stdin_stdout", "input": "2"}], "has no `output`"),
    ],
)
def test_tests_that_say_nothing_are_an_error(tests, message):
    """Bad tests have no verdict: they raise, for right and wrong code alike."""
    with pytest.raises(BadTests, match=message):
        code_python([""], [SQUARE], [tests])


def test_a_class_of_the_solution_is_no_fault_of_the_test():
    """A test that hands on what the solution gave is not to blame for what that is."""
    test = "made = make(3)\nassert use(made) == 4"
    assert score("def make(n): return ValueError\ndef use(x): return 4\n", test) == 0.0
    assert score("def make(n): return n + 1\ndef use(x): return x\n", test) == 1.0


FORGED = """
import sys
M = 2**61 - 1  # its multiples have one hash
N = range(60_000)
frame = sys._getframe()
while type(frame.f_locals.get("self")).__name__ != "_Solution":
    frame = frame.f_back
operations = frame.f_locals["self"]._operations
operations["call"] = lambda request: {"value": VALUE}
def f(): pass
"""


@pytest.mark.parametrize(
    "value",
    [
        '{"type": "dict", "value": [[{"type": "int", "value": hex(i * M)}, 0] for i in N]}',
        '{"type": "fraction", "value": [hex(3**1_200_000), hex(7**700_000)]}',
        "[0] * 100_000",
    ],
)
def test_a_huge_answer_is_wrong(value):
    """What is read outside the sandbox is bounded by what a right answer could need."""
    start = time.process_time()
    test = {"type": "call", "function": "f", "arguments": [], "result": 4}
    assert score(FORGED.replace("VALUE", value), test) == 0.0
    # Without the bound the first two take more than ten times as long.
    assert time.process_time() - start < 2


def test_a_long_right_answer_is_right():
    """The bound follows the size of the expected value, and tuples are spelled longer."""
    pairs = [[i, i] for i in range(20_000)]
    test = {"type": "call", "function": "f", "arguments": [], "result": pairs}
    assert score("def f(): return [(i, i) for i in range(20_000)]\n", test) == 1.0


def test_options_are_checked():
    """An unknown kind of credit or sandbox is refused."""
    with pytest.raises(ValueError, match="`credit` must be one of all, fraction"):
        score(SQUARE, "assert square(2) == 4", credit="half")
    with pytest.raises(ValueError, match="`sandbox` must be one of auto"):
        score(SQUARE, "assert square(2) == 4", sandbox="docker")


def test_tests_may_be_json():
    """Tests as JSON text, with every spelling of a call."""
    calls = [
        {"type": "call", "fn": "Solution.square", "args": [2], "expected": 4},
        {"type": "call", "function": "Solution.square", "keywords": {"x": 3}, "result": 9},
    ]
    code = "class Solution:\n    def square(self, x):\n        return x * x"
    assert code_python([""], [code], [json.dumps(calls)]) == [1.0]
