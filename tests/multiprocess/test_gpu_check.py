# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""deploy/gpu_check.sh as a whole, with the CPU in place of the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.multiprocess.conftest import ROOT, run_command

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_cpu_agrees_with_itself(tmp_path: Path) -> None:
    """Two trainings on the CPU have the same rows and numbers, and the check says so."""
    text = run_command(
        ROOT / "deploy/gpu_check.sh",
        timeout_s=800,
        DEVICE="cpu",
        STEPS="40",
        OUT=str(tmp_path),
        PYTHON=sys.executable,
    )
    assert "rows of the first step that are the same: 1.000" in text
    assert "log-probabilities of the first policy: 0.00e+00 apart" in text
    assert "gpu_check: the device agrees with the CPU" in text
