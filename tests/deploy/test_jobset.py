# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The JobSet of the base trains: two pods with their servers, and a worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess

import pytest

from tests.deploy import kubelet, manifests
from tests.deploy.cluster import cluster
from tests.integration import service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not manifests.HAS_KUBECTL, reason="needs kubectl"),
    pytest.mark.skipif("TEST_CONTAINERS" not in os.environ, reason="make test-containers sets it"),
]
TERMINATED = 128 + signal.SIGTERM


def train(pod, log, steps):
    """Starts the trainer of a pod, for fewer steps."""
    arguments = [*pod.arguments("trainer"), f"--steps={steps}"]
    with log.open("wb") as out:
        return subprocess.Popen(
            [*pod.prefix("trainer"), *pod.image.entrypoint, *arguments],
            stdout=out,
            stderr=out,
        )


@contextlib.contextmanager
def job(pods, folder, *, steps):
    """The trainers of all pods and their logs; none outlives the block."""
    logs = [folder / f"{pod.name}-{steps}.log" for pod in pods]
    started = []
    try:
        started.extend(train(pod, log, steps) for pod, log in zip(pods, logs, strict=True))
        yield started, logs
    finally:
        for process in started:
            process.kill()
            process.wait(30)


def test_it_trains_stops_and_goes_on(tmp_path, secrets, reward_image, trainer_image):
    """Processes meet by the coordinator's name; SIGTERM to one pod stops all; a restart goes on."""
    base = manifests.build(manifests.FOLDER / "base")
    with cluster(tmp_path, base, secrets) as made, contextlib.ExitStack() as stack:
        worker = stack.enter_context(
            kubelet.start(made.pod("Deployment", image=reward_image), "worker")
        )
        pods = [made.pod("JobSet", index, image=reward_image) for index in (0, 1)]
        servers = [stack.enter_context(kubelet.start(pod, "reward-server")) for pod in pods]
        for pod in pods:
            pod.image = trainer_image
        for process in (worker, *servers):
            process.ready()
        out = pods[0].volume("runs") / "grpo"
        metrics = out / "metrics.jsonl"

        def steps():
            return len(metrics.read_text(encoding="utf-8").splitlines()) if metrics.exists() else 0

        with job(pods, tmp_path, steps=5000) as (started, logs):

            def going():
                texts = [log.read_text(encoding="utf-8") for log in logs]
                assert [process.poll() for process in started] == [None, None], texts
                return steps() >= 2

            service.until(going, timeout_s=900)
            kubelet.terminate(pods[1], started[1])
            codes = [process.wait(600) for process in started]
            assert codes == [TERMINATED] * 2, [log.read_text() for log in logs]
        done = steps()
        with job(pods, tmp_path, steps=done + 2) as (started, logs):
            codes = [process.wait(900) for process in started]
            said = [log.read_text(encoding="utf-8") for log in logs]
            assert codes == [0, 0], said
        assert "resumed after step" in said[0]
        written = json.loads((out / "train.json").read_text(encoding="utf-8"))
        assert written["processes"] == 2
        assert written["rows_failed"] == 0
        assert steps() == done + 2
