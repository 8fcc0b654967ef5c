# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The image of servers and workers, made line by line, and pods that run it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.deploy import images, kubelet, manifests
from tests.deploy.cluster import cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("TEST_CONTAINERS" not in os.environ, reason="make test-containers sets it"),
]
NOT_IN_IT = ("jax", "jaxlib", "torch", "transformers", "tunix", "pip", "grpc_tools", "pytest")
VERSIONS = """
import importlib.metadata, json
print(json.dumps({d.name: d.version for d in importlib.metadata.distributions()}))
"""


def run(image, *command):
    """Runs a command in a container that has no network but this machine's, and no volumes."""
    script = f'{image.script()}\nexec {image.start()} "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_pods_run_it(reward_image, tmp_path, secrets):
    """Read-only, without root and privileges: it serves, scores and drains as process 1."""
    with cluster(tmp_path, manifests.build(manifests.FOLDER / "base"), secrets) as pods:
        kubelet.serve_and_drain(pods, image=reward_image)


def test_it_can_write_nothing(reward_image):
    """Its user is not root, and the root file system is read-only."""
    assert run(reward_image, "id", "-u").stdout == "65532\n"
    done = run(reward_image, "touch", "/opt/shardward/x", "/x", "/tmp/x")
    assert done.stderr.count("Read-only file system") == 3, done.stderr


def test_versions_are_pinned(reward_image):
    """All packages have the version of constraints.txt; only the Containerfile's are missing."""
    lines = (manifests.ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines)
    done = run(reward_image, "python", "-c", VERSIONS)
    found = {k.lower().replace("_", "-"): v for k, v in json.loads(done.stdout).items()}
    assert {name for name, version in found.items() if pins.get(name) != version} == {
        "dumb-init",
        "shardward",
    }


@pytest.mark.parametrize("name", NOT_IN_IT)
def test_it_has_no_more_than_it_needs(reward_image, name):
    """Neither trainer nor tools are in it."""
    done = run(reward_image, "/opt/shardward/bin/python", "-c", f"import {name}")
    assert f"No module named '{name}'" in done.stderr


def test_the_last_stages_are_small(reward_image):
    """No compiler, no cache: their base is slim and they only copy."""
    for name in ("reward", "trainer"):
        stage = images.stages()[name]
        assert stage.base.endswith("-slim")
        assert {instruction for instruction, _ in stage.lines} == {
            *("COPY", "ENV", "USER", "ENTRYPOINT"),
        }
    made = [path for layer in reward_image.layers for path in (layer / "opt").rglob("*")]
    assert made
    assert not [path for path in made if path.name in ("gcc", "cc", "g++", "pip", ".cache")]


def test_the_build_gets_only_what_it_copies():
    """Neither tests, nor the history, nor what a run left are sent to the builder."""
    kept = ("reward_server/cli.py", "protos/shardward/v1/types_pb2.py", "constraints.txt")
    left = (".git/config", "tests/data/reward_fns.py", "trainer/__pycache__/cli.pyc", "runs/x")
    assert [images.ignored(path) for path in (*kept, *left)] == [False] * 3 + [True] * 4
