# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Secrets of the cluster, and images for its pods."""

from __future__ import annotations

import os

import pytest

from tests.deploy import checks, images
from tests.deploy.cluster import secrets_of_readme


@pytest.fixture(scope="session")
def secrets(tmp_path_factory):
    """A folder of Secrets as the README makes them: those that pods want, with all their keys."""
    folder = tmp_path_factory.mktemp("secrets")
    assert secrets_of_readme(folder) == checks.SECRETS
    return folder


@pytest.fixture(scope="session")
def reward_image(tmp_path_factory):
    """The image of servers and workers."""
    yield from _image("reward", tmp_path_factory)


@pytest.fixture(scope="session")
def trainer_image(tmp_path_factory):
    """The image of trainers."""
    yield from _image("trainer", tmp_path_factory)


def _image(target, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    with images.memory(tmp_path_factory.mktemp(target)) as folder:
        yield images.build(target, folder)
