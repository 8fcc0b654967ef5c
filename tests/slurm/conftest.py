# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes for all tests of this folder, and a folder and jobs for each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing
from tests.slurm.jobs import Jobs


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster."""
    if lacking := missing():
        pytest.skip(f"needs {', '.join(lacking)}: run make test-slurm")
    # munged wants folders that everybody may enter, and sockets want short paths.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    with Cluster(folder) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    """Jobs of a test; afterwards no process and no socket of them is left."""
    folder = Path(tempfile.mkdtemp(dir=cluster.folder, prefix="jobs-"))
    made = Jobs(cluster, folder)
    yield made
    made.close()
