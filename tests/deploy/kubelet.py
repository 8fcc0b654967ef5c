# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a kubelet does with a container, and what a trainer does with its reward server."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from reward_server.cli import EXIT_OK, EXIT_UNREACHABLE
from tests.deploy import manifests
from tests.integration import service
from trainer import RewardClient
from trainer.codec import LocalRollouts
from trainer.recipes import tiny

COMPLETIONS = ["3", "4", "no", "1+1=2"]
# The sum is right: 1; it is an integer: 0.2.
TOTALS = [1.2, 0.2, 0.0, 0.0]
SHORT = [1.0, 1.0, 1.0, 0.0]
SERVING = health_pb2.HealthCheckResponse.SERVING
_HERE = (sys.executable, "-m", "reward_server")


def exec_probe(pod, name):
    """Runs the command of a startup probe in a container; returns its exit code and output."""
    command = pod.container(name)["startupProbe"]["exec"]["command"]
    done = subprocess.run(
        [*pod.prefix(name), *(command[:1] if pod.image else _HERE), *command[1:]],
        cwd=manifests.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def start(pod, name):
    """Starts a container of a server or worker."""
    program = pod.image.entrypoint if pod.image else _HERE
    return service.command(*pod.arguments(name), prefix=pod.prefix(name), program=program)


def stop(pod, running):
    """Stops a container of a server or worker; returns its exit code."""
    terminate(pod, running.process)
    return running.wait()


def terminate(pod, process):
    """Sends SIGTERM to a container's first process, which in an image is process 1."""
    pid = process.pid
    if pod.image:
        (first,) = psutil.Process(pid).children()
        pid = first.pid
    os.kill(pid, signal.SIGTERM)


def health(pod, name, kind):
    """Asks a container as a gRPC probe does: at the pod's address, without TLS."""
    probe = pod.container(name)[kind]["grpc"]
    address = f"{pod.address}:{probe['port']}"
    with grpc.insecure_channel(address) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=probe.get("service", ""))
            return stub.Check(request, timeout=10).status
        except grpc.RpcError:
            return None


def metric_names(pod, name):
    """Names of the metrics of a container, as Prometheus gets them."""
    (port,) = [p for p in pod.container(name)["ports"] if p["name"] == "metrics"]
    connection = http.client.HTTPConnection(pod.address, port["containerPort"], timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


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


def serve_and_drain(pods, *, image=None):
    """Plays the base: starts a worker and a server, probes them, scores rows, stops both."""
    workers = pods.pod("Deployment", image=image)
    trainer = pods.pod("JobSet", image=image)
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
        assert "listening to everybody" not in worker.log
        assert stop(trainer, server) == 0, server.log
        assert stop(workers, worker) == 0, worker.log
        assert health(workers, "worker", "readinessProbe") is None
