# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of manifests can fail: each mistake in a manifest is found."""

from __future__ import annotations

import pytest

from tests.deploy import checks, manifests, schemas

pytestmark = pytest.mark.skipif(not manifests.HAS_KUBECTL, reason="needs kubectl")


@pytest.fixture
def resources(tmp_path):
    """The base with cert-manager."""
    return manifests.with_components(tmp_path, "cert-manager")


@pytest.fixture
def with_keda(tmp_path):
    """The base with KEDA."""
    return manifests.with_components(tmp_path, "keda")


def pod(resources, kind):
    """The pod template of a kind."""
    return next(pod for pod in manifests.pods(resources) if pod.owner["kind"] == kind)


def in_place(name, old, new):
    """Changes an argument of a container."""

    def change(resources):
        arguments = manifests.container(resources, name)["args"]
        assert any(old in argument for argument in arguments)
        arguments[:] = [argument.replace(old, new) for argument in arguments]

    return change


def in_container(name, *path, value):
    """Sets a value in a container."""
    return lambda resources: put(manifests.container(resources, name), *path, value=value)


def in_resource(kind, *path, value, name=None):
    """Sets a value in a resource."""
    return lambda resources: put(manifests.one(resources, kind, name), *path, value=value)


def in_pod(kind, *path, value):
    """Sets a value in the spec of a pod template."""
    return lambda resources: put(pod(resources, kind).spec, *path, value=value)


def put(where, *path, value):
    """Sets a value that is reached by keys and indices; None removes it."""
    for key in path[:-1]:
        where = where[key]
    if value is None:
        del where[path[-1]]
    else:
        where[path[-1]] = value


JOB = ("spec", "replicatedJobs", 0, "template")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (in_resource("Deployment", "spec", "replica", value=3), "replica"),
        (in_resource("Deployment", "spec", "minReadySeconds", value="10"), "minReadySeconds"),
        (in_container("worker", "livenesProbe", value={}), "livenesProbe"),
        (in_container("worker", "livenessProbe", "grpc", "port", value="health"), "port"),
        (in_resource("HorizontalPodAutoscaler", "spec", "maxReplica", value=3), "maxReplica"),
        (in_resource("Service", "spec", "clusterIp", value="None"), "clusterIp"),
        (in_resource("JobSet", "spec", "failurePolicy", "maxRestart", value=3), ".maxRestart"),
        (in_resource("JobSet", "spec", "network", "enableDNSHostname", value=True), "DNSHostname"),
        (in_resource("JobSet", *JOB, "spec", "backoffLimitt", value=3), ".backoffLimitt"),
        (in_resource("JobSet", *JOB, "spec", "completionMode", value=3), "completionMode"),
        (in_container("reward-server", "startupProb", value={}), ".startupProb"),
        (in_container("trainer", "securityContext", "privilege", value=True), ".privilege"),
    ],
)
def test_the_schemas_find_mistakes(resources, change, text):
    """A typing error in a key or a value of another type, at any depth, is found."""
    change(resources)
    found = [c for r in resources for c in schemas.complaints(r, schemas.VERSIONS[-1:])]
    assert any(text in complaint for complaint in found), found


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (in_place("worker", "--drain-s", "--drain"), "unrecognized arguments: --drain"),
        (in_place("worker", "--log-json", "--log-jsn"), "--log-jsn"),
        (in_place("worker", "--slots=4", "--slots=four"), "invalid int value"),
        (in_place("worker", "--slots=4", "--slots=0"), "`slots` must be"),
        (in_place("worker", "--slots=4", "--slots=5"), "--slots must be <= the CPU limit 4"),
        (in_place("worker", "--max-child-mb=1024", "--max-child-mb=4096"), "memory limit must be"),
        (in_place("worker", "--tls-cert", "--token-file"), "`--listen` must be a unix socket"),
        (in_place("worker", "rewards.toml", "reward.toml"), "must be a readable file"),
        (in_place("worker", "/etc/shardward/token/", "/etc/shardward/tokens/"), "is on no volume"),
        (in_place("worker", "token/token", "token/secret"), "is not in volume token"),
        (in_place("worker", "0.0.0.0:7000", "0.0.0.0:7100"), "listens on 0.0.0.0:7100"),
        (in_place("worker", "0.0.0.0:7001", "0.0.0.0:7002"), "asks port 7001"),
        (in_place("worker", "--drain-s=60", "--drain-s=100"), "terminationGracePeriodSeconds"),
        (in_place("reward-server", "--drain-s=20", "--drain-s=400"), "terminationGracePeriodSec"),
        (in_place("reward-server", "reward-workers:7000", "workers:7000"), "is no Service"),
        (in_place("reward-server", "reward-workers:7000", "reward-workers"), "`--workers` must be"),
        (in_place("reward-server", "--listen=unix:/run", "--listen=unix:/var"), "is on no volume"),
        (in_place("trainer", "--recipe=tiny", "--recipe=large"), "invalid choice"),
        (in_place("trainer", "--reward-timeout=300", "--reward-timeout=0"), "--reward-timeout"),
        (in_place("trainer", "--num-processes", "--processes"), "unrecognized arguments"),
        (in_place("trainer", "$(PROCESS_ID)", "$(PROCESS)"), "--process-id"),
        (in_place("trainer", "reward.sock", "rewards.sock"), "--reward-endpoint must be"),
        (in_place("trainer", ":8476", ":8477"), "ports must be [8477]"),
        (in_container("trainer", "image", value="python:3.11"), "is not ours"),
        (in_container("trainer", "env", 0, "value", value="3"), "must be parallelism 2, got 3"),
        (
            in_container("reward-server", "startupProbe", "exec", "command", 1, value="chek"),
            "invalid choice",
        ),
        (
            in_container("reward-server", "startupProbe", "exec", "command", 0, value="grpcurl"),
            "no program",
        ),
        (in_container("reward-server", "startupProbe", "timeoutSeconds", value=8), "timeoutSec"),
        (in_container("reward-server", "startupProbe", "failureThreshold", value=3), "must allow"),
        (in_container("reward-server", "restartPolicy", value=None), "must be sidecars"),
        (in_container("worker", "livenessProbe", value=None), "livenessProbe is missing"),
        (in_container("worker", "securityContext", "readOnlyRootFilesystem", value=False), "Root"),
        (in_container("worker", "volumeMounts", 0, "mountPath", value="/temp"), "volume at /tmp"),
        (in_container("worker", "volumeMounts", 0, "name", value="scratch"), "is not defined"),
        (in_pod("Deployment", "automountServiceAccountToken", value=True), "automount"),
        (in_pod("Deployment", "securityContext", "runAsNonRoot", value=None), "runAsNonRoot"),
        (in_pod("Deployment", "securityContext", "fsGroup", value=None), "without fsGroup"),
        (in_pod("Deployment", "volumes", 3, "secret", "secretName", value="tls"), "documented"),
        (in_pod("Deployment", "volumes", 3, "secret", "defaultMode", value=None), "defaultMode"),
        (in_pod("JobSet", "volumes", -1, "persistentVolumeClaim", "claimName", value="r"), "runs"),
        (in_resource("JobSet", "spec", "coordinator", "replicatedJob", value="x"), "coordinator"),
        (in_resource("JobSet", *JOB, "spec", "completions", value=3), "parallelism must be"),
        (in_resource("JobSet", "spec", "network", "enableDNSHostnames", value=False), "DNS"),
        (in_resource("Service", "spec", "ports", 0, "port", value=7001), "must have port 7000"),
        (in_resource("Service", "spec", "ports", 0, "targetPort", value="health"), "port 7000"),
        (in_resource("Service", "spec", "clusterIP", value=None), "must be headless"),
        (in_resource("Service", "spec", "selector", "app", value="x"), "selects no pod"),
        (in_resource("Service", "metadata", "namespace", value="default"), "must be in shardward"),
        (
            in_resource("HorizontalPodAutoscaler", "spec", "scaleTargetRef", "name", value="w"),
            "is no Deployment",
        ),
        (in_resource("Deployment", "spec", "replicas", value=3), "not both"),
        (
            in_resource("Deployment", "spec", "selector", "matchLabels", "app", value="x"),
            "its own pods",
        ),
        (
            in_resource(
                "PodDisruptionBudget", "spec", "selector", "matchLabels", "app", value="x"
            ),
            "PodDisruptionBudget reward-workers selects no pod",
        ),
        (
            in_resource(
                "NetworkPolicy",
                *("spec", "ingress", 0, "ports", 0, "port"),
                value=7001,
                name="reward-workers",
            ),
            "lets nobody in",
        ),
        (
            in_resource("NetworkPolicy", "spec", "egress", value=[{}], name="reward-workers"),
            "may reach somebody",
        ),
        (
            in_resource("NetworkPolicy", "spec", "podSelector", "matchLabels", "app", value="x",
                        name="trainer"),
            "JobSet grpo may be reached by everybody",
        ),
        (
            in_resource("Certificate", "spec", "dnsNames", value=["x"], name="reward-workers"),
            "must name ['reward-workers']",
        ),
        (
            in_resource("Certificate", "spec", "secretName", value="x", name="reward-server"),
            "no Certificate makes Secret reward-server-tls",
        ),
        (
            in_resource("Certificate", "spec", "issuerRef", "name", value="x", name="reward-ca"),
            "must have one of",
        ),
    ],
)  # fmt: skip
def test_the_checks_find_mistakes(resources, change, text):
    """What the schemas can't know, but a program or another manifest contradicts, is found."""
    change(resources)
    found = checks.complaints(resources)
    assert any(text in complaint for complaint in found), found


TRIGGER = ("spec", "triggers", 0, "metadata", "query")
FROM_PROMETHEUS = ("spec", "ingress", 0, "ports", 0, "port")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (in_place("worker", ":9090", ":9091"), "ports must be [7000, 7001, 9091]"),
        (in_resource("ScaledObject", "spec", "scaleTargetRef", "name", value="w"), "is no Deploy"),
        (in_resource("ScaledObject", *TRIGGER, value="sum(reward_rows)"), "nobody has the metrics"),
        (in_resource("ScaledObject", *TRIGGER, value="reward_slots"), "must be about shardward"),
        (
            in_resource("PodMonitor", "spec", "podMetricsEndpoints", 0, "port", value="http"),
            "wants port http",
        ),
        (
            in_resource("NetworkPolicy", *FROM_PROMETHEUS, value=7001, name="metrics"),
            "lets nobody in at 9090",
        ),
    ],
)
def test_the_checks_find_mistakes_about_metrics(with_keda, change, text):
    """What KEDA and Prometheus would look for in vain is found."""
    change(with_keda)
    found = checks.complaints(with_keda)
    assert any(text in complaint for complaint in found), found


def test_two_autoscalers_are_found(with_keda, tmp_path_factory):
    """The CPU autoscaler beside KEDA's would fight it."""
    base = manifests.with_components(tmp_path_factory.mktemp("base"))
    found = checks.complaints([*with_keda, manifests.one(base, "HorizontalPodAutoscaler")])
    assert "two autoscalers name reward-workers" in found
