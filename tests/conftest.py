# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares the tests out among the processes of pytest-xdist; ends what they leave in them.

The tests with JAX processes keep both cores busy at times, most others wait for clocks: one process
has the former, one after the other, while the others share the rest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOGETHER = "tests/multiprocess/"


class _ByFile(LoadScopeScheduling):
    """Keeps each file in one process, so that its fixtures are made once."""

    def _split_scope(self, nodeid: str) -> str:
        return _TOGETHER if nodeid.startswith(_TOGETHER) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Takes the place of --dist."""
    return _ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests with JAX processes first, since they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(_TOGETHER))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that a test runs in this process logs no longer than the test."""
    level = logging.root.level
    yield
    for handler in list(logging.root.handlers):
        if type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)
    logging.root.setLevel(level)
