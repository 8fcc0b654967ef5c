# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers and workers started with the arguments, files and probes of the manifests."""

from __future__ import annotations

import subprocess
import sys

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reward_server.cli import EXIT_OK, EXIT_UNREACHABLE
from tests.deploy import checks, manifests
from tests.deploy.cluster import cluster, secrets_of_readme
from tests.integration import service
from trainer import RewardClient
from trainer.codec import LocalRollouts
from trainer.recipes import tiny

pytestmark = pytest.mark.skipif(not manifests.HAS_KUBECTL, reason="needs kubectl")
COMPLETIONS = ["3", "4", "no", "1+1=2"]
# The sum is right: 1; it is an integer: 0.2.
TOTALS = [1.2, 0.2, 0.0, 0.0]
SHORT = [1.0, 1.0, 1.0, 0.0]
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    """Secrets as the README makes them."""
    folder = tmp_path_factory.mktemp("secrets")
    made = secrets_of_readme(folder)
    assert made == checks.SECRETS
    return folder


def exec_probe(pod, name):
    """Runs the command of a startup probe in a container; returns its exit code and output."""
    command = pod.container(name)["startupProbe"]["exec"]["command"]
    assert command[0] == "reward-server"
    done = subprocess.run(
        [*pod.prefix(name), *program(pod), *command[1:]],
        cwd=manifests.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def program(pod):
    """What `reward-server` is in a container: that of its image, or of this checkout."""
    return pod.root.reward_server if pod.root else (sys.executable, "-m", "reward_server")


def start(pod, name):
    """Starts a container."""
    entry = pod.root.entrypoint if pod.root else program(pod)
    return service.command(*pod.arguments(name), prefix=pod.prefix(name), program=entry)


def health(pod, name, kind):
    """Asks a container as a gRPC probe does: at the pod's address, without TLS."""
    address = f"{pod.address}:{pod.container(name)[kind]['grpc']['port']}"
    with grpc.insecure_channel(address) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status
        except grpc.RpcError:
            return None


def score(pod):
    """Scores rows over the socket that the trainer has."""
    width = max(map(len, COMPLETIONS)) + 1
    ids = np.zeros((len(COMPLETIONS), width), np.int32)
    for row, text in enumerate(COMPLETIONS):
        ids[row, : len(text) + 1] = [*tiny.encode(text), 1]
    rows = LocalRollouts(
        row_ids=np.arange(len(COMPLETIONS)),
        group_ids=np.zeros(len(COMPLETIONS), np.int64),
        prompts=["1+2="] * len(COMPLETIONS),
        completion_ids=ids,
        end_token_ids=[1],
        pad_token_id=0,
        columns={"answer": ["3"] * len(COMPLETIONS)},
    )
    client = RewardClient(f"unix:{pod.volume('socket')}/reward.sock", timeout_s=60)
    client.connect()
    try:
        return client.score(rows)
    finally:
        client.close()


def check_scores(pod):
    """Scores rows and compares, the function of the ConfigMap included."""
    rewards = score(pod)
    assert rewards.totals.tolist() == pytest.approx(TOTALS)
    assert rewards.reward_fns == ("arithmetic", "integer_format", "short")
    assert rewards.rewards[:, 2].tolist() == SHORT


def test_a_server_with_workers(tmp_path, secrets):
    """Base: certificates, token, name, ports and probes fit; rows come back; both drain."""
    with cluster(tmp_path, manifests.build(manifests.FOLDER / "base"), secrets) as pods:
        workers, trainer = pods.pod("Deployment"), pods.pod("JobSet")
        assert exec_probe(trainer, "reward-server")[0] == EXIT_UNREACHABLE
        with start(workers, "worker") as worker, start(trainer, "reward-server") as server:
            worker.ready()
            server.ready()
            code, said = exec_probe(trainer, "reward-server")
            assert code == EXIT_OK, said
            assert "4 slots in 1 workers" in said
            for pod, name in ((workers, "worker"), (trainer, "reward-server")):
                for kind in ("readinessProbe", "livenessProbe"):
                    assert health(pod, name, kind) == SERVING
            check_scores(trainer)
            assert [process.end() for process in (server, worker)] == [0, 0], worker.log
            assert health(workers, "worker", "readinessProbe") is None
            assert "listening to everybody" not in worker.log


def test_a_server_that_runs_the_functions(tmp_path, secrets):
    """Overlay `embedded`: no worker and no Secret is needed."""
    overlay = manifests.build(manifests.FOLDER / "overlays" / "embedded")
    with cluster(tmp_path, overlay, secrets) as pods:
        pod = pods.pod("JobSet")
        with start(pod, "reward-server") as server:
            server.ready()
            code, said = exec_probe(pod, "reward-server")
            assert code == EXIT_OK, said
            check_scores(pod)
            assert server.end() == 0
