# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""deploy/gpu_check.sh as a whole, with the CPU in place of the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


def test_cpu_agrees_with_itself(tmp_path: Path) -> None:
    """Two trainings on the CPU have the same rows and numbers, and the check says so."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    environment = {"DEVICE": "cpu", "STEPS": "40", "OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "deploy/gpu_check.sh"],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=800,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert "rows of the first step that are the same: 1.000" in text
    assert "log-probabilities of the first policy: 0.00e+00 apart" in text
    assert "gpu_check: the device agrees with the CPU" in text
