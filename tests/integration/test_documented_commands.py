# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of the documentation, typed as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.local.nodes import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# docs/writing_rewards.md has a test that compares what it prints, too.
FILES = ("README.md", "docs/deploy.md", "docs/security.md", "docs/smollm2.md", "docs/judge.md")
# Commands with one of these need what is not here: a cluster, an installation, a script of yours.
ELSEWHERE = re.compile(
    r"\bmake\b|\bsbatch\b|\bkubectl\b|\bsystemctl\b|\bmy_grpo\.py\b|TOKENIZER_DIR| \.\.\. "
)
TRAINS = re.compile(r"grpo-train .*--steps")


class Block(NamedTuple):
    """A console block: its place, and what is typed."""

    file: str
    section: str
    commands: str


def fences(file):
    """Fenced blocks of a page: section, language, text."""
    section = ""
    for found in re.finditer(
        r"^#+ (?P<section>[^\n]+)$|^```(?P<language>\w+)\n(?P<text>.*?)^```$",
        (ROOT / file).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    ):
        section = found["section"] or section
        if found["language"]:
            yield section, found["language"], found["text"]


def typed(text):
    """What a person types of a console block: lines after "$ " and those that go on from them."""
    lines, goes_on = [], False
    for line in text.splitlines():
        if goes_on or line.startswith("$ "):
            lines.append(re.sub(r"  +# .*$", "", line.removeprefix("$ ")))
            goes_on = line.endswith("\\")
    return "\n".join(lines)


def blocks():
    """All console blocks."""
    return [
        Block(file, section, typed(text))
        for file in FILES
        for section, language, text in fences(file)
        if language == "console"
    ]


def here(wanted):
    """Blocks that can run here, each once: those that train, or the others."""
    found = {b.commands: b for b in blocks() if not ELSEWHERE.search(b.commands)}
    return [b for b in found.values() if bool(TRAINS.search(b.commands)) == wanted]


def names(given):
    """Ids of tests."""
    return [f"{block.file}-{block.section}" for block in given]


def write_files(folder):
    """Writes the files that README.md shows: their names are in the first line."""
    for _, _, text in fences("README.md"):
        if found := re.match(r"# (\S+\.(?:py|toml))\n", text):
            (folder / found[1]).write_text(text, encoding="utf-8")


def run(block, folder, *, timeout_s):
    """Types a block in a new shell, in a folder with the files of the README; gives the output."""
    write_files(folder)
    commands = block.commands.replace("/tmp/", f"{folder}/").replace("--steps 20", "--steps 2")
    ports = {port: str(free_port()) for port in re.findall(r"127\.0\.0\.1:(\d+)", commands)}
    for port, free in ports.items():
        commands = commands.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        # As in the checkout, where people type; what is written shall not be.
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
        "JAX_PLATFORMS": "cpu",
    }
    # Whatever runs in the background ends with the shell.
    script = (
        f"trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\nset -eo pipefail\n{commands}\n"
    )
    done = subprocess.run(
        ["bash", "-m", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert "Traceback" not in text
    return text


def test_blocks_are_found():
    """Each page shows how to start a server and to train with it."""
    assert len(blocks()) > 8
    for file in FILES[:2]:
        found = [b.commands for b in blocks() if b.file == file]
        both = [c for c in found if "reward-server serve" in c and TRAINS.search(c)]
        assert both, file
        assert not any(ELSEWHERE.search(commands) for commands in both)


@pytest.mark.parametrize("block", here(False), ids=names(here(False)))
def test_a_block_runs_as_printed(tmp_path, block):
    """Every command ends well, in the order in which the page has them."""
    run(block, tmp_path, timeout_s=200)


@pytest.mark.multiprocess
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=[pytest.mark.slow] if "launch" in block.commands else [])
        for block in here(True)
    ],
    ids=names(here(True)),
)
def test_a_block_that_trains_runs_as_printed(tmp_path, block):
    """A server and a training of the recipe meet: the same tokenizer, rewards of all rows."""
    text = run(block, tmp_path, timeout_s=800)
    assert "step 2/2 " in text
    assert "accuracy after" in text
