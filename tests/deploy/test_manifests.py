# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The manifests: what the API would take, and what fits the programs and each other."""

from __future__ import annotations

import filecmp

import pytest

from tests.deploy import checks, manifests, schemas
from trainer import recipes

pytestmark = pytest.mark.skipif(not manifests.HAS_KUBECTL, reason="needs kubectl")
BASE = manifests.FOLDER / "base"
KUSTOMIZATIONS = ["base", *manifests.OVERLAYS, *manifests.COMPONENTS, "all together"]
# Each asks for other nodes of the trainer.
APART = {"gpu", "tpu"}


@pytest.fixture(params=KUSTOMIZATIONS)
def resources(request, tmp_path):
    """What one kustomization gives."""
    name = request.param
    if name == "base":
        return manifests.build(BASE)
    if name in manifests.OVERLAYS:
        return manifests.build(manifests.FOLDER / "overlays" / name)
    together = sorted({*manifests.COMPONENTS} - APART | {"gpu"})
    return manifests.with_components(tmp_path, *(together if name == "all together" else [name]))


def test_the_api_takes_them(resources):
    """No key is unknown and no value wrong, from the first Kubernetes with sidecars to the last."""
    found = [text for r in resources for text in schemas.complaints(r, schemas.VERSIONS)]
    assert found == []


def test_they_fit(resources):
    """Flags, ports, probes, volumes, selectors and limits agree with programs and each other."""
    assert checks.complaints(resources) == []


@pytest.mark.parametrize("component", manifests.COMPONENTS)
def test_components_change_something(component, tmp_path):
    """A patch whose target is gone would be left out without a word."""
    changed = manifests.with_components(tmp_path, component)
    known = manifests.build(BASE)
    assert [resource for resource in changed if resource not in known]


def test_the_tokenizer_is_that_of_the_recipe():
    """The trainer refuses a server with another one."""
    folder = recipes.load("tiny").tokenizer_dir
    names = sorted(path.name for path in folder.iterdir())
    copies = BASE / "config" / "tokenizer"
    same, different, missing = filecmp.cmpfiles(folder, copies, names, shallow=False)
    assert (sorted(same), different, missing) == (names, [], [])


def test_images_can_be_renamed(tmp_path):
    """An `images` entry reaches the Deployment, the JobSet and its sidecar."""
    manifests.with_components(tmp_path)
    file = tmp_path / "kustomization.yaml"
    entries = [f"{{name: shardward-{name}, newName: r/{name}}}" for name in ("reward", "trainer")]
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    text = file.read_text(encoding="utf-8").replace("- ..", "- ../..")
    images = f"images: [{', '.join(entries)}]\n"
    (renamed / "kustomization.yaml").write_text(text + images, encoding="utf-8")
    found = [
        container["image"]
        for pod in manifests.pods(manifests.build(renamed))
        for container in pod.containers
    ]
    assert sorted(found) == ["r/reward:0.1.0", "r/reward:0.1.0", "r/trainer:0.1.0"]
