# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Secrets of the cluster."""

from __future__ import annotations

import pytest

from tests.deploy import checks
from tests.deploy.cluster import secrets_of_readme


@pytest.fixture(scope="session")
def secrets(tmp_path_factory):
    """A folder of Secrets as the README makes them: those that pods want, with all their keys."""
    folder = tmp_path_factory.mktemp("secrets")
    assert secrets_of_readme(folder) == checks.SECRETS
    return folder
