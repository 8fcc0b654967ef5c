# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes manifests as a cluster would get them, and what is in them."""

from __future__ import annotations

import base64
import copy
import dataclasses
import functools
import re
import shutil
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
HAS_KUBECTL = shutil.which("kubectl") is not None
COMPONENTS = sorted(path.parent.name for path in FOLDER.glob("components/*/kustomization.yaml"))
OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("overlays/*/kustomization.yaml"))


@dataclasses.dataclass(frozen=True)
class Pod:
    """A pod template: the spec, its labels, and of which resource it is."""

    owner: dict
    labels: dict
    spec: dict

    @property
    def name(self):
        """For messages."""
        return f"{self.owner['kind']} {self.owner['metadata']['name']}"

    @property
    def containers(self):
        """All containers, sidecars first."""
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]


def build(folder):
    """Resources of a kustomization."""
    return copy.deepcopy(_build(Path(folder)))


@functools.cache
def _build(folder):
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


def parse(text):
    """Resources of a stream of YAML documents."""
    return [resource for resource in yaml.safe_load_all(text) if resource]


def write_secrets(secrets, folder):
    """Writes each Secret as a folder of files."""
    for secret in secrets:
        path = folder / secret["metadata"]["name"]
        path.mkdir()
        for key, value in secret["data"].items():
            (path / key).write_bytes(base64.b64decode(value))


def with_components(folder, *components):
    """Resources of the base with components, from a kustomization written into a folder."""
    # Kustomize takes relative paths only.
    up = Path(*[".."] * (len(folder.parts) - 1))
    here = up / FOLDER.relative_to("/")
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "shardward",
        "resources": [str(here / "base")],
        "components": [str(here / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return build(folder)


def readme_block(word):
    """The code block of the README that has a word in it."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```\w+\n(.*?)```", text, re.DOTALL) if word in b]
    return block


def of_kind(resources, *kinds):
    """Resources of some kinds."""
    return [resource for resource in resources if resource["kind"] in kinds]


def one(resources, kind, name=None):
    """The only resource of a kind, or the one with a name."""
    found = [r for r in of_kind(resources, kind) if name in (None, r["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


def pods(resources):
    """Pod templates of Deployments and JobSets."""
    found = []
    for owner in of_kind(resources, "Deployment", "JobSet"):
        if owner["kind"] == "Deployment":
            templates = [owner["spec"]["template"]]
        else:
            jobs = owner["spec"]["replicatedJobs"]
            templates = [job["template"]["spec"]["template"] for job in jobs]
        found += [
            Pod(owner, template["metadata"]["labels"], template["spec"]) for template in templates
        ]
    return found


def container(resources, name):
    """The container with a name."""
    (found,) = [c for pod in pods(resources) for c in pod.containers if c["name"] == name]
    return found


def flag(found, name):
    """Value of a flag `--name=value` of a container, or None."""
    values = [a.partition("=")[2] for a in found["args"] if a.startswith(f"--{name}=")]
    return values[-1] if values else None


def port_of(address):
    """The port of HOST:PORT."""
    return int(address.rpartition(":")[2])
