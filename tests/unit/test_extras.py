# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of reward functions whose extra is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

JUDGE = """
import asyncio
from reward_server.reward_fns.llm_judge import llm_judge
asyncio.run(llm_judge(["p"], ["c"], base_url="http://127.0.0.1:1/v1", model="m"))
"""
MODEL = """
from reward_server.reward_fns.reward_model import reward_model
reward_model(["p"], ["c"], path=".")
"""


@pytest.mark.parametrize(
    ("code", "package", "extra"),
    [(JUDGE, "aiohttp", "judge"), (MODEL, "torch", "reward-model")],
)
def test_without_the_extra(tmp_path, code, package, extra):
    """The module loads without its extra; using it names the package and the extra."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    code = f"import sys; sys.modules[{package!r}] = None\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"needs the package {package}: it is not installed." in done.stderr
    assert f"shardward[{extra}]" in done.stderr
