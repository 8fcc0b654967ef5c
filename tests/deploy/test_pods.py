# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers started with the arguments, files and probes of the manifests."""

from __future__ import annotations

import pytest

from reward_server.cli import EXIT_OK
from tests.deploy import kubelet, manifests
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
