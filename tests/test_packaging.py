# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the wheel, and of what a reward server or worker needs to be installed."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HEAVY = {"jax", "jaxlib", "torch", "flax", "google-tunix", "transformers", "tensorflow"}


def test_the_wheel_holds_all_three_roots(tmp_path):
    """Trainer, reward server and stubs are in the wheel; tests and scripts are not."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entry_points).decode()
    roots = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert roots == {"trainer", "reward_server", "shardward"}
    for stub in ("reward", "scoring", "types"):
        assert f"shardward/v1/{stub}_pb2.py" in names
        assert f"shardward/v1/{stub}_pb2.pyi" in names
        assert f"shardward/v1/{stub}.proto" in names
    assert "shardward/v1/reward_pb2_grpc.py" in names
    assert "reward_server/reward_fns/gsm8k.py" in names
    # Type checkers read annotations only where this file says that there are some.
    assert {f"{root}/py.typed" for root in roots} <= set(names)
    assert "reward-server = reward_server.cli:main" in commands
    assert not [name for name in names if "test" in name or name.endswith(".pyc")]


def test_the_sdist_holds_what_the_wheel_is_made_of(tmp_path):
    """No file of another folder that happens to have the same name."""
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    roots = {name.partition("/")[0] for name in names}
    assert roots - {"PKG-INFO", ".gitignore"} == {
        *("trainer", "reward_server", "protos"),
        *("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"),
    }
    assert "trainer/recipes/tiny_tokenizer/tokenizer.json" in names


def closure(name, extras=frozenset(), seen=None):
    """Names of a distribution and of everything it requires here."""
    seen = set() if seen is None else seen
    key = (canonicalize_name(name), extras)
    if key in seen:
        return {name for name, _ in seen}
    seen.add(key)
    try:
        requires = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        requires = []
    for text in requires:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            closure(requirement.name, frozenset(requirement.extras), seen)
    return {name for name, _ in seen}


def test_a_worker_installs_without_jax_or_torch():
    """What the server extra requires, down to the last, holds no training framework."""
    needed = closure("shardward", frozenset({"server"}))
    assert {"grpcio", "tokenizers", "numpy", "protobuf"} <= needed
    assert not needed & HEAVY
    assert closure("shardward", frozenset({"trainer"})) & HEAVY


def test_stubs_load_on_old_runtimes():
    """Stubs come from the compiler that goes with the oldest protobuf allowed."""
    for stub in (ROOT / "protos" / "shardward" / "v1").glob("*_pb2.py"):
        assert re.search(r"Protobuf Python Version: 5\.29\.", stub.read_text(encoding="utf-8"))
