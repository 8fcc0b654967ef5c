# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a server and its workers are started with."""

from __future__ import annotations

import pytest

from reward_server.decode import Tokenizer
from tests.integration import service


@pytest.fixture(scope="module")
def files(request, tmp_path_factory):
    """A folder with a tokenizer and a rewards file, which a test file may have as `REWARDS`."""
    rewards = getattr(request.module, "REWARDS", service.REWARDS)
    return service.write_files(tmp_path_factory.mktemp("files"), rewards=rewards)


@pytest.fixture(scope="module")
def tokenizer(files):
    """The tokenizer of that folder."""
    return Tokenizer.load(files)
