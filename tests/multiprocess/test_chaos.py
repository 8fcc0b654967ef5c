# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The short form of `make chaos`: every row has one outcome, whatever dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import run as chaos

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]


def test_no_row_is_lost_or_comes_twice(tmp_path: Path) -> None:
    """Two processes train to the end, after an error of one, while servers and workers die."""
    job = chaos.Job(steps=25, seed=1, every_s=0.5, timeout_s=800, out=tmp_path / "chaos")
    summary = chaos.run(job)
    assert chaos.is_good(summary), summary
    assert summary["steps"] == 25
    assert sum(summary["faults"].values()) >= 5
    assert summary["rows_masked"]["ERROR"]
    assert summary["rows_masked"]["INVALID"]
