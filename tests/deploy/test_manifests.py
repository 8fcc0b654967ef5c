# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The manifests: what the API would take, and what fits the programs and each other."""

from __future__ import annotations

import filecmp
import re
import shutil

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


def test_the_kustomization_of_the_readme(tmp_path):
    """It builds and fits, and its images reach the Deployment, the JobSet and its sidecar."""
    copy = tmp_path / "kubernetes"
    shutil.copytree(manifests.FOLDER, copy)
    (copy / "mine").mkdir()
    block = manifests.readme_block("kind: Kustomization")
    (copy / "mine" / "kustomization.yaml").write_text(block, encoding="utf-8")
    resources = manifests.build(copy / "mine")
    assert checks.complaints(resources) == []
    found = [c["image"] for pod in manifests.pods(resources) for c in pod.containers]
    assert sorted(found) == [
        "REGISTRY/shardward-reward:0.1.0",
        "REGISTRY/shardward-reward:0.1.0",
        "REGISTRY/shardward-trainer:0.1.0-cuda13",
    ]


def test_the_readme_names_all_components():
    """Somebody who reads only the README finds each."""
    text = (manifests.FOLDER / "README.md").read_text(encoding="utf-8")
    for name in (*manifests.COMPONENTS, *manifests.OVERLAYS):
        assert f"`{name}`" in text or f"/{name}" in text


def test_the_guide_builds_the_images_of_all_components():
    """A tag that a component names is one that the commands of README.md give to an image."""
    guide = (manifests.FOLDER / "README.md").read_text(encoding="utf-8")
    assert "-t REGISTRY/shardward-trainer:0.1.0-$JAX ." in guide
    (values,) = re.findall(r"^JAX=(\w+) +# or (\w+)$", guide, re.MULTILINE)
    files = (manifests.FOLDER / "components").glob("*/kustomization.yaml")
    tags = [tag for f in files for tag in re.findall(r"newTag: (\S+)", f.read_text("utf-8"))]
    assert sorted(tags) == sorted(f"0.1.0-{jax}" for jax in values)
