# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the schemas of Kubernetes and JobSet say of manifests; each complaint is a line."""

from __future__ import annotations

import functools
import json

import kubernetes_validate
from kubeflow_trainer_api import models
from kubernetes_validate import utils

VERSIONS = [f"1.{minor}" for minor in range(29, int(utils.latest_version().split(".")[1]) + 1)]
# Kinds of operators that no package brings a schema for.
CUSTOM = ("ScaledObject", "PodMonitor", "Certificate", "Issuer")


def complaints(resource, versions):
    """Says what Kubernetes would not take."""
    kind, name = resource["kind"], resource["metadata"]["name"]
    if kind in CUSTOM:
        return []
    if kind != "JobSet":
        return [
            f"{kind} {name}, {version}: {text}"
            for version in versions
            for text in _invalid(json.dumps(resource), version)
        ]
    found = [f"JobSet {name}: {text}" for text in _unknown_in_jobset(resource)]
    for job in resource["spec"]["replicatedJobs"]:
        as_job = {"apiVersion": "batch/v1", "kind": "Job", **job["template"]}
        as_job["metadata"] = {"name": name, **job["template"].get("metadata", {})}
        found += complaints(as_job, versions)
    return found


@functools.cache
def _invalid(resource, version):
    try:
        kubernetes_validate.validate(json.loads(resource), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message[:300]}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [error.message]
    return []


def _unknown_in_jobset(resource):
    """Keys and values that do not survive a round trip through the models of JobSet."""
    try:
        known = models.JobsetV1alpha2JobSet.from_dict(resource).to_dict()
    except (ValueError, TypeError) as error:
        return [str(error)]
    return list(_lost(resource, json.loads(json.dumps(known, default=str)), ""))


def _lost(given, known, path):
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                yield f"{path}.{key} is unknown"
            else:
                yield from _lost(value, known[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(known, list):
        for index, (value, other) in enumerate(zip(given, known, strict=True)):
            yield from _lost(value, other, f"{path}[{index}]")
    elif given != known:
        yield f"{path} is {given!r}, read as {known!r}"
