# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers started with the arguments, files and probes of the manifests."""

from __future__ import annotations

import pytest

from reward_server.cli import EXIT_OK
from tests.deploy import checks, kubelet, manifests
from tests.deploy.cluster import cluster

pytestmark = pytest.mark.skipif(not manifests.HAS_KUBECTL, reason="needs kubectl")


def test_a_server_with_workers(tmp_path, secrets):
    """Base: certificates, token, name, ports and probes fit; rows come back; both drain."""
    with cluster(tmp_path, manifests.build(manifests.FOLDER / "base"), secrets) as pods:
        kubelet.serve_and_drain(pods)


def test_a_server_that_runs_the_functions(tmp_path, secrets):
    """Overlay `embedded`: no worker and no Secret is needed."""
    overlay = manifests.build(manifests.FOLDER / "overlays" / "embedded")
    with cluster(tmp_path, overlay, secrets) as pods:
        pod = pods.pod("JobSet")
        with kubelet.start(pod, "reward-server") as server:
            server.ready()
            code, said = kubelet.exec_probe(pod, "reward-server")
            assert code == EXIT_OK, said
            kubelet.check_scores(pod)
            assert kubelet.stop(pod, server) == 0


def test_prometheus_gets_what_is_asked_for(tmp_path, tmp_path_factory, secrets):
    """Component `keda`: a worker has all metrics that queries may name, on the pod's address."""
    resources = manifests.with_components(tmp_path_factory.mktemp("keda"), "keda")
    with cluster(tmp_path, resources, secrets) as pods:
        pod = pods.pod("Deployment")
        with kubelet.start(pod, "worker") as worker:
            worker.ready()
            assert kubelet.metric_names(pod, "worker") == checks.METRICS
