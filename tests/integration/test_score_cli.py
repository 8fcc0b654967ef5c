# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of `reward-server score`: files, what is kept, the summary and exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import termios

import pytest

from reward_server import cli
from tests.integration import service

REWARDS = f"""
[[reward]]
fn = "{service.FUNCTIONS}:faulty"
timeout_s = 0.5

[[reward]]
fn = "{service.FUNCTIONS}:length"
weight = 0.5
"""


@pytest.fixture
def files(tmp_path):
    """A folder with a tokenizer of single characters and a rewards file."""
    return service.write_files(tmp_path / "files", rewards=REWARDS)


def command(*args):
    """Arguments of the command in a process of its own."""
    return [sys.executable, "-m", "reward_server", "score", *map(str, args)]


def score(*args, code=0):
    """Runs the command, checks its exit code and returns what it printed."""
    done = subprocess.run(
        command(*args), cwd=service.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code in (cli.EXIT_OK, cli.EXIT_FAILED) else done.stderr


def write(file, rows):
    """Writes rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read(file):
    """Reads JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def texts(*completions):
    """Rows of these completions, with a key that the functions do not take."""
    return [
        {"id": i, "prompt": "p", "completion": text, "note": {"kept": [i]}}
        for i, text in enumerate(completions)
    ]


def test_rows_get_their_rewards(tmp_path, files):
    """Each line comes back with values, total, status and error; other keys stay as they are."""
    rows = texts("ab", "", "raise", "none", "abcd")
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    printed = score(file, "--rewards", files / "rewards.toml", "--out", out, code=cli.EXIT_FAILED)
    scored = read(out)
    assert [{k: row[k] for k in rows[0]} for row in scored] == rows
    assert [row["reward"] for row in scored] == [2.0, 1.0, None, None, 3.0]
    assert [row["status"] for row in scored] == ["OK", "OK", "ERROR", "INVALID", "OK"]
    assert scored[0]["rewards"] == {"faulty": 1.0, "length": 2.0}
    assert scored[2]["rewards"] == {"faulty": None, "length": 5.0}
    assert scored[0]["error"] is None
    line = re.search(r"ZeroDivisionError: division by zero \(line (\d+) of reward_fns.py\)",
                     scored[2]["error"])  # fmt: skip
    source = service.FUNCTIONS.read_text(encoding="utf-8").splitlines()
    # The last line of the function's own file: not ours, and not Python's.
    assert "1 / 0" in source[int(line[1]) - 1]
    assert scored[3]["error"] == "faulty: returned None"
    assert "rows scored: 5, " in printed
    assert re.search(r"faulty +1 +1\.0000 +0\.0000 +1\.0000 +1\.0000 +3\n", printed)
    assert re.search(r"length +0\.5 +3\.0000 +2\.0000 +0\.0000 +5\.0000 +5\n", printed)
    assert re.search(r"reward +2\.0000 +1\.0000 +1\.0000 +3\.0000 +3\n", printed)
    assert "failed ERROR: 1 of 5 rows (20.0%)" in printed
    assert "line 3: faulty: ZeroDivisionError" in printed


def test_the_summary_says_what_a_training_would_learn_from(tmp_path):
    """Failures by message, constants, groups without signal, what is logged and what is printed."""
    (tmp_path / "fns.py").write_text(
        "def parse(completion, log_extra):\n"
        "    print('seen', completion)\n"
        "    log_extra('words', 2.0 * len(completion))\n"
        "    return float(completion)\n"
        "def same(completion):\n    return 1\n",
        encoding="utf-8",
    )
    (tmp_path / "r.toml").write_text(
        '[[reward]]\nfn = "fns.py:parse"\nper = "row"\n'
        '[[reward]]\nfn = "fns.py:same"\nper = "row"\nweight = 2\n',
        encoding="utf-8",
    )
    groups = {"p": ["1", "1"], "q": ["1", "2"], "r": ["x", "y", "z"], "s": [""], "t": ["3"]}
    rows = [{"prompt": p, "completion": c} for p, texts in groups.items() for c in texts]
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    flags = ("--rewards", tmp_path / "r.toml", "--out", out)
    done = subprocess.run(
        command(file, *flags), cwd=service.ROOT, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == cli.EXIT_FAILED, done.stderr
    assert "same: constant, 1 in all 9 rows: no signal" in done.stdout
    assert "parse: constant" not in done.stdout
    assert "all the same, without signal: 1 of 2 (50.0%)" in done.stdout
    assert "line 5 and 3 more: parse: ValueError: could not convert string" in done.stdout
    assert re.search(r"words +logged +1\.7778 +0\.6667 +0\.0000 +2\.0000 +9\n", done.stdout)
    assert "seen 3\n" in done.stderr
    assert read(out)[0]["extra_columns"] == {"words": 2.0}
    # The output is an input, and nobody has to score it twice.
    assert "rows scored: 4, kept: 5" in score(out, *flags, "--only-failed", code=1)


def test_failures_of_functions_without_weight(tmp_path):
    """They fail no row, and the summary says how many there are and what was raised."""
    (tmp_path / "fns.py").write_text(
        "def size(completions, **_):\n    return [float(len(c)) for c in completions]\n"
        "def number(completions, **_):\n    return [float(c) for c in completions]\n"
        "async def slow(completion):\n"
        "    import asyncio\n    await asyncio.sleep(600 * (completion == '3'))\n    return 1.0\n"
        "def first(completions, **_):\n    return [1 / int(completions[0])] * len(completions)\n",
        encoding="utf-8",
    )
    (tmp_path / "r.toml").write_text(
        '[[reward]]\nfn = "fns.py:size"\n'
        '[[reward]]\nfn = "fns.py:number"\nweight = 0\n'
        '[[reward]]\nfn = "fns.py:slow"\nper = "row"\nweight = 0\ntimeout_s = 0.5\n'
        '[[reward]]\nfn = "fns.py:first"\nper = "group"\nweight = 0\n',
        encoding="utf-8",
    )
    rows = [
        {"prompt": p, "completion": c}
        for p, c in zip("ppqrr", ["x", "y", "3", "0", "1"], strict=True)
    ]
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    printed = score(file, "--rewards", tmp_path / "r.toml", "--out", out)
    assert [row["reward"] for row in read(out)] == [1.0] * 5
    assert "failed with weight 0, which fails no row: 5 of 5 rows (100.0%)" in printed
    assert "line 1 and 1 more: number: ValueError: could not convert" in printed
    assert "line 1 and 1 more: first: ValueError: invalid literal" in printed
    assert "line 4 and 1 more: first: ZeroDivisionError" in printed
    assert "line 3: slow: ran longer than 0.5 s" in printed
    assert "failed ERROR" not in printed


def test_only_failed_rows_are_scored_again(tmp_path, files):
    """Rows with a reward keep their lines to the byte; the file may be its own output."""
    rows = texts("ab", "raise", "hello")
    file = write(tmp_path / "rows.jsonl", rows)
    file.chmod(0o640)
    flags = ("--rewards", files / "rewards.toml", "--out", file)
    score(file, *flags, code=cli.EXIT_FAILED)
    before = file.read_text(encoding="utf-8").splitlines()
    # Whoever scored them before gave a reward that these functions do not give.
    before[0] = before[0].replace('"reward": 2.0', '"reward":   77')
    changed = json.loads(before[1])
    changed["completion"] = "good"
    file.write_text("\n".join([before[0], json.dumps(changed), before[2]]), encoding="utf-8")
    printed = score(file, *flags, "--only-failed")
    after = file.read_text(encoding="utf-8").splitlines()
    assert (after[0], after[2]) == (before[0], before[2])
    assert json.loads(after[1])["reward"] == 3.0
    assert json.loads(after[1])["error"] is None
    assert "rows scored: 1, kept: 2" in printed
    assert "had failed" not in printed
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert "rows scored: 0, kept: 3" in score(file, *flags, "--only-failed")
    assert file.read_text(encoding="utf-8").splitlines() == after
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["rows.jsonl"]


def test_a_hanging_row_costs_its_limit_and_is_named(tmp_path, files):
    """Rows that hang or kill their process have a status; the slowest row is named first."""
    file = write(tmp_path / "rows.jsonl", texts("a", "sleep", "b", "hardexit", "c"))
    out = tmp_path / "out.jsonl"
    printed = score(file, "--rewards", files / "rewards.toml", "--out", out, code=cli.EXIT_FAILED)
    assert [row["status"] for row in read(out)] == ["OK", "TIMEOUT", "OK", "CRASHED", "OK"]
    slowest = printed.partition("slowest rows\n")[2].splitlines()
    assert len(slowest) == 5
    assert slowest[0].startswith("  line 2: ")
    assert slowest[0].endswith(" s  TIMEOUT")


def test_ids_and_texts_in_one_file(tmp_path, files):
    """Rows of ids are decoded and cut at the end token as a server does; order stays."""
    end = len(service.CHARACTERS) + 1
    ids = [service.CHARACTERS.index(c) for c in "abc"]
    rows = [
        {"prompt": "p", "completion_ids": [*ids, end, *ids]},
        {"prompt": "p", "completion": "abcde"},
        {"prompt": "p", "completion_ids": []},
        {"prompt": "p", "completion_ids": [*ids, 5000, 6000]},
    ]
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    flags = ("--rewards", files / "rewards.toml", "--out", out)
    score(file, *flags, "--tokenizer", files)
    assert [row["rewards"]["length"] for row in read(out)] == [3, 5, 0, 5]
    assert "line 1: `completion_ids` must come with `--tokenizer`" in score(file, *flags, code=3)
    write(file, [*rows, {"prompt": "p", "completion_ids": [2**24]}])
    message = score(file, *flags, "--tokenizer", files, code=3)
    assert "line 5: `completion_ids` must be in [0, 16777216), got 16777216" in message


def test_step_mode_and_missing_keys(tmp_path):
    """Functions get a row's step and mode, and their own default for a key that a row lacks."""
    (tmp_path / "fns.py").write_text(
        "def when(completion, mode, step, bonus=100):\n"
        "    return step + bonus + 1000 * (mode == 'eval')\n",
        encoding="utf-8",
    )
    (tmp_path / "r.toml").write_text('[[reward]]\nfn = "fns.py:when"\nper = "row"\n', "utf-8")
    rows = [
        {"prompt": "p", "completion": "c"},
        {"prompt": "p", "completion": "c", "step": 7, "mode": "eval"},
        {"prompt": "p", "completion": "c", "step": 7, "bonus": 1},
    ]
    out = tmp_path / "out.jsonl"
    score(write(tmp_path / "rows.jsonl", rows), "--rewards", tmp_path / "r.toml", "--out", out)
    assert [row["reward"] for row in read(out)] == [100, 1107, 8]


def test_a_default_that_nobody_meant(tmp_path):
    """A column of the function that no row has is said once, with the nearest of the file."""
    (tmp_path / "fns.py").write_text(
        "def same(completion, anwser=None, level=1, *, worth=1.0, **_):\n"
        "    return worth * (completion == anwser)\n",
        encoding="utf-8",
    )
    (tmp_path / "r.toml").write_text('[[reward]]\nfn = "fns.py:same"\nper = "row"\n', "utf-8")
    row = {"prompt": "p", "completion": "4"}
    file = tmp_path / "rows.jsonl"

    def warnings(rows):
        done = subprocess.run(
            command(write(file, rows), "--rewards", tmp_path / "r.toml"),
            cwd=service.ROOT, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]

    (warning,) = warnings([row, {**row, "answer": "4", "level": 2}, row])
    assert "'same': no row has its column `anwser`" in warning
    assert "the nearest is `answer`" in warning
    # Nothing else could be meant, or some row has it.
    assert not warnings([row])
    assert not warnings([row, {**row, "anwser": "4", "level": 2, "id": 7}])


def test_rows_of_several_datasets(tmp_path):
    """A row needs the columns of the functions of its source, and is scored by those."""
    (tmp_path / "r.toml").write_text(
        '[route]\ncolumn = "source"\n'
        '[[reward]]\nfn = "arithmetic"\nsources = ["sums"]\n'
        '[[reward]]\nfn = "integer_format"\nweight = 0.5\n',
        encoding="utf-8",
    )
    row = {"prompt": "p", "completion": "4"}
    rows = [{**row, "source": "sums", "answer": "4"}, {**row, "source": "other"}]
    out = tmp_path / "out.jsonl"
    flags = (tmp_path / "rows.jsonl", "--rewards", tmp_path / "r.toml", "--out", out)
    write(flags[0], rows)
    score(*flags, code=cli.EXIT_FAILED)
    first, second = read(out)
    assert first["rewards"] == {"arithmetic": 1.0, "integer_format": 1.0}
    assert second["reward"] is None
    assert "`source` must be one of ['sums'], got 'other'" in second["error"]
    write(flags[0], [rows[0], {**row, "answer": "4"}])
    assert "line 2: `source` must be there" in score(*flags, code=3)
    write(flags[0], [{**row, "source": "sums"}])
    assert "line 1: `answer` must be there" in score(*flags, code=3)


def test_functions_see_whole_groups(tmp_path):
    """Rows of one `group_id`, or else of one prompt, come together, and again if one failed."""
    (tmp_path / "fns.py").write_text(
        "def share(completions, **_):\n"
        "    bad = 'bad' in completions\n"
        "    return [None if bad and c == 'good' else 1 / len(completions) for c in completions]\n",
        encoding="utf-8",
    )
    (tmp_path / "r.toml").write_text('[[reward]]\nfn = "fns.py:share"\nper = "group"\n', "utf-8")
    rows = [
        {"prompt": "p", "completion": "good", "group_id": 1},
        {"prompt": "q", "completion": "a"},
        {"prompt": "p", "completion": "bad", "group_id": 1},
        {"prompt": "p", "completion": "a", "group_id": 2},
        {"prompt": "q", "completion": "b"},
        {"prompt": "q", "completion": "c"},
    ]
    file = write(tmp_path / "rows.jsonl", rows)
    flags = (file, "--rewards", tmp_path / "r.toml", "--out", file)
    score(*flags, code=cli.EXIT_FAILED)
    third = pytest.approx(1 / 3)
    scored = read(file)
    assert [row["reward"] for row in scored] == [None, third, 0.5, 1.0, third, third]
    scored[2]["completion"] = "fine"
    write(file, [*scored, {"prompt": "p", "completion": "d", "group_id": 1}])
    printed = score(*flags, "--only-failed")
    assert "rows scored: 3, kept: 4" in printed
    assert "\n2 had failed; 'share' sees whole groups, which are scored again\n" in printed
    assert [row["reward"] for row in read(file)] == [third, third, third, 1.0, third, third, third]
    write(file, [rows[0], {**rows[2], "extra": 1}])
    assert "line 2: must have the keys of the rows of its group" in score(*flags, code=3)
    write(file, [rows[0]] * 257)
    assert "line 257: a group must have <= 256 rows" in score(*flags, code=3)


CHATS = """
EXAMPLE = {"completion": "x"}

def share(prompts, completions, **_):
    last = [prompt[-1]["content"] for prompt in prompts]
    return [float(c[0]["content"].count(p)) / len(c) for p, c in zip(last, completions)]
"""


def test_chats(tmp_path):
    """Functions with `messages = true` get the file's chats, and its texts as chats of one."""
    (tmp_path / "fns.py").write_text(CHATS, encoding="utf-8")
    trl = '[[reward]]\nfn = "trl.rewards:think_format_reward"\nmessages = true\n'
    own = '[[reward]]\nfn = "fns.py:share"\nmessages = true\n'
    rewards, out = tmp_path / "r.toml", tmp_path / "out.jsonl"
    said = [{"role": "assistant", "content": "<think>a</think>aa"}]
    asked = [{"role": "system", "content": "brief"}, {"role": "user", "content": "a"}]
    rows = [
        {"prompt": asked, "completion": said},
        {"prompt": asked, "completion": "aa"},
        {"prompt": "aa", "completion": [*said, {"role": "tool", "content": None, "name": "t"}]},
    ]
    file = write(tmp_path / "rows.jsonl", rows)
    rewards.write_text(trl + own, "utf-8")
    printed = score(file, "--rewards", rewards, "--out", out)
    scored = read(out)
    assert [row["rewards"]["share"] for row in scored] == [3.0, 2.0, 0.5]
    assert [row["rewards"]["think_format_reward"] for row in scored] == [1.0, 0.0, 1.0]
    assert [{k: row[k] for k in ("prompt", "completion")} for row in scored] == rows
    # Two rows of one chat are a group.
    assert "without signal: 0 of 1 (0.0%)" in printed
    rewards.write_text(f'{own}per = "group"\n', "utf-8")
    score(file, "--rewards", rewards, "--out", out)
    assert [row["reward"] for row in read(out)] == [3.0, 2.0, 0.5]
    rewards.write_text(own + '[[reward]]\nfn = "format"\n', "utf-8")
    message = score(file, "--rewards", rewards, code=3)
    assert "line 1: `prompt` must be text for reward function 'format', got a chat" in message
    assert "set `messages = true`" in message
    assert "apply the chat template" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be a JSON object: "),
        ("[1]", "must be a JSON object, got [1]."),
        ('{"completion": "c"}', "`prompt` must be text or a chat, a list of"),
        ('{"prompt": 5, "completion": "c"}', '{"role": "...", "content": ...}, got 5.'),
        ('{"prompt": [], "completion": "c"}', "`prompt` must be text or a chat"),
        ('{"prompt": "p", "completion": [{"role": "user"}]}', '"content": ...}, got [{"role": "u'),
        ('{"prompt": "p"}', "must have either `completion` or `completion_ids`."),
        ('{"prompt": "p", "completion": ["c"]}', '"content": ...}, got ["c"].'),
        ('{"prompt": "p", "completion_ids": [1.5]}', "`completion_ids` must be a list of int32"),
        ('{"prompt": "p", "completion": "c", "step": -1}', "`step` must be a whole number >= 0"),
        ('{"prompt": "p", "completion": "c", "mode": "x"}', '`mode` must be "train" or "eval"'),
        ('{"prompt": "p", "completion": "c", "status": "x"}', "`status` must have another name"),
        ('{"prompt": "p", "completion": "c", "group_id": []}', "`group_id` must be a whole number"),
        ('{"prompt": "p", "completion": "c", "x": ' + "[" * 5000 + "]" * 5000 + "}", "must be a"),
        ('{"prompt": "p", "completion": "\\udc"}', "must be a JSON object: "),
    ],
)
def test_bad_lines_are_named(tmp_path, files, line, message):
    """The number of the line and what is wrong with it; nothing is written."""
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_text(f'{{"prompt": "p", "completion": "c"}}\n\n{line}\n', encoding="utf-8")
    printed = score(file, "--rewards", files / "rewards.toml", "--out", out, code=3)
    place, _, problem = printed.partition("line 3: ")
    assert place.endswith(f"{file}, ")
    assert message in problem
    assert not out.exists()


def test_a_column_that_a_function_needs(tmp_path):
    """A row without it is named before anything is scored."""
    (tmp_path / "r.toml").write_text('[[reward]]\nfn = "arithmetic"\n', "utf-8")
    rows = [{"prompt": "p", "completion": "4", "answer": "4"}, {"prompt": "p", "completion": "4"}]
    file = write(tmp_path / "rows.jsonl", rows)
    message = score(file, "--rewards", tmp_path / "r.toml", "--out", file, code=3)
    assert f"{file}, line 2: `answer` must be there for reward function 'arithmetic'" in message
    assert read(file) == rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "/no/such/rows"}, "/no/such/rows must be a readable file"),
        ({"--rewards": "/no/such/rewards"}, "/no/such/rewards must be a readable file"),
        ({"--out": "/no/such/folder/out"}, "`--out` must be a file to write"),
        ({"--slots": "0"}, "`--slots` must be >= 1, got 0"),
    ],
)
def test_wrong_settings_end_with_code_3(tmp_path, files, change, message):
    """Each is found before rows are scored, and named."""
    given = {"file": write(tmp_path / "rows.jsonl", texts("a"))}
    given |= {"--rewards": files / "rewards.toml", **change}
    flags = (given.pop("file"), *(word for pair in given.items() for word in pair))
    assert message in score(*flags, code=3)


def test_hostile_texts_survive_the_way(tmp_path, files):
    """Half surrogates, NUL and line separators come back as they were, and each row in its line."""
    rows = texts("\ud800", "a\0b", "\u2028\u0085\r", "x" * 2**20)
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    score(file, "--rewards", files / "rewards.toml", "--out", out)
    scored = [json.loads(line) for line in out.read_bytes().split(b"\n") if line]
    assert [row["completion"] for row in scored] == [row["completion"] for row in rows]
    assert [row["rewards"]["length"] for row in scored] == [1, 3, 3, 2**20]


def test_an_empty_file_is_no_failure(tmp_path, files):
    """No rows give an empty file and code 0, unless the functions are wrong."""
    file, out = write(tmp_path / "rows.jsonl", []), tmp_path / "out.jsonl"
    assert "rows scored: 0" in score(file, "--rewards", files / "rewards.toml", "--out", out)
    assert out.read_bytes() == b""
    bad = tmp_path / "bad.toml"
    bad.write_text('[[reward]]\nfn = "none.py:f"\n', encoding="utf-8")
    assert "there is no file" in score(file, "--rewards", bad, code=3)


def test_an_interrupt_leaves_the_file_alone(tmp_path):
    """Ctrl-C ends with code 130 and without a trace; the file is as it was, and nothing is left."""
    (tmp_path / "fns.py").write_text(
        "import pathlib, time\n"
        "def slow(completion, folder):\n"
        "    if folder:\n"
        "        pathlib.Path(folder, 'started').touch()\n"
        "        time.sleep(600)\n"
        "    return 1.0\n",
        encoding="utf-8",
    )
    rewards = tmp_path / "r.toml"
    rewards.write_text('[[reward]]\nfn = "fns.py:slow"\nper = "row"\ntimeout_s = 600\n', "utf-8")
    rows = [{"prompt": "p", "completion": "c", "folder": str(tmp_path)}]
    file = write(tmp_path / "rows.jsonl", rows)
    running = subprocess.Popen(
        command(file, "--rewards", rewards, "--out", file),
        cwd=service.ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        service.until((tmp_path / "started").exists)
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "Traceback" not in printed
    assert read(file) == rows
    names = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert names == {"fns.py", "r.toml", "rows.jsonl", "started"}


STUCK = """
import pathlib, time
def stuck(completion, folder):
    if completion == "stuck":
        pathlib.Path(folder, "started").touch()
        time.sleep(600)
    return 1.0
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_costs_no_row_that_was_scored(tmp_path, number):
    """Rows that have a reward are written, the others are marked, and can be scored later."""
    (tmp_path / "fns.py").write_text(STUCK, encoding="utf-8")
    rewards = tmp_path / "r.toml"
    rewards.write_text('[[reward]]\nfn = "fns.py:stuck"\nper = "row"\ntimeout_s = 600\n', "utf-8")
    completions = [*["good"] * 5, "stuck", *["good"] * 5]
    rows = [{"prompt": "p", "completion": c, "folder": str(tmp_path)} for c in completions]
    file, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    flags = ("--rewards", rewards, "--slots", 1, "--out", out)
    running = subprocess.Popen(
        command(file, *flags),
        cwd=service.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        service.until((tmp_path / "started").exists)
        running.send_signal(number)
        printed, told = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + number
    assert "Traceback" not in told
    scored = read(out)
    assert [row["reward"] for row in scored] == [*[1.0] * 5, *[None] * 6]
    assert [row["status"] for row in scored[5:]] == ["NOT_SCORED"] * 6
    assert "5 of 11 rows were scored" in told
    assert "failed NOT_SCORED: 6 of 11 rows" in printed
    scored[5]["completion"] = "good"
    assert "rows scored: 6, kept: 5" in score(write(out, scored), *flags, "--only-failed")
    assert [row["reward"] for row in read(out)] == [1.0] * 11


def test_a_slow_start_is_said(tmp_path):
    """Who waits for children is told what they do."""
    (tmp_path / "fns.py").write_text(
        "import time\ntime.sleep(3)\ndef f(completion):\n    return 1.0\n", encoding="utf-8"
    )
    (tmp_path / "r.toml").write_text('[[reward]]\nfn = "fns.py:f"\nper = "row"\n', "utf-8")
    file = write(tmp_path / "rows.jsonl", texts("a"))
    done = subprocess.run(
        command(file, "--rewards", tmp_path / "r.toml"),
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "starting children" in done.stderr


def test_an_output_that_is_no_file(tmp_path, files):
    """A pipe or device is refused before the work, and is still there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = write(tmp_path / "rows.jsonl", texts("a"))
    flags = ("--rewards", files / "rewards.toml", "--out", pipe)
    assert "`--out` must be a file to write" in score(file, *flags, code=3)
    assert pipe.is_fifo()


def test_a_bar_on_a_terminal_and_lines_elsewhere(tmp_path, files):
    """Progress is a bar where somebody looks, and a line where a log is kept."""
    file = write(tmp_path / "rows.jsonl", texts("a", "b"))
    args = command(file, "--rewards", files / "rewards.toml")
    done = subprocess.run(
        args, cwd=service.ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr.endswith("scored 2 of 2 rows\n")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        running = subprocess.Popen(args, cwd=service.ROOT, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while data := terminal.read(1024):
                shown += data
        except OSError:  # how Linux says that the other side has closed
            pass
        finally:
            running.kill()
            running.wait()
    assert "2/2" in shown.decode()
    assert "score: 100%" in shown.decode()


def test_the_page_on_writing_functions_is_true(tmp_path):
    """Its function, rewards file and rows give what it shows, times aside."""
    page = (service.ROOT / "docs" / "writing_rewards.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    python, toml, rows, line = (
        next(text for kind, text in blocks if kind == wanted and start in text)
        for wanted, start in (
            ("python", "def boxed"),
            ("toml", "boxed"),
            ("json", "3 + 4"),
            ("json", "status"),
        )
    )
    (tmp_path / "my_rewards.py").write_text(python, encoding="utf-8")
    (tmp_path / "rewards.toml").write_text(toml, encoding="utf-8")
    (tmp_path / "rollouts.jsonl").write_text(rows, encoding="utf-8")
    out = tmp_path / "scored.jsonl"
    flags = (tmp_path / "rollouts.jsonl", "--rewards", tmp_path / "rewards.toml", "--out", out)
    printed = score(*flags, code=cli.EXIT_FAILED)
    shown = printed[printed.index("function") : printed.index("slowest rows")]
    assert shown in page
    assert line in out.read_text(encoding="utf-8")
    test = [sys.executable, "-m", "reward_server", "rewards", "test"]
    whole, done = (
        subprocess.run(
            [*test, *what], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        for what in (["--rewards", "rewards.toml"], ["my_rewards.py:boxed"])
    )
    assert whole.returncode == done.returncode == cli.EXIT_FAILED
    assert whole.stdout in page
    (wrong,) = re.findall(r"^LaTeX, nested .* s  (error: .*)$", done.stdout, re.MULTILINE)
    assert wrong in page
    assert done.stdout.endswith("2 of 26 inputs failed\n")
