# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares the tests out among the processes of pytest-xdist."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps each file together; the tests with JAX processes share theirs and come first.

    They are the longest, and most other tests wait for clocks: both fit on two cores at once.
    """
    items.sort(key=lambda item: item.get_closest_marker("multiprocess") is None)
    for item in items:
        together = item.get_closest_marker("multiprocess") is not None
        item.add_marker(pytest.mark.xdist_group("multiprocess" if together else item.path.name))
