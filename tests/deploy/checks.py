# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold between manifests and programs, and among manifests; each complaint is a line."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from reward_server.lifecycle import LAME_DUCK_S
from reward_server.membership import START_TIMEOUT_S
from tests.deploy import manifests, programs

OVERHEAD_BYTES = 512 * 2**20
MARGIN_S = 5.0
# What README.md makes by hand.
SECRETS = {
    "reward-workers-tls": {"tls.crt", "tls.key", "ca.crt"},
    "reward-server-tls": {"tls.crt", "tls.key", "ca.crt"},
    "reward-token": {"token"},
}
METRICS = {
    "reward_children",
    "reward_inflight_rows",
    "reward_queue_rows",
    "reward_rows_total",
    "reward_slots",
    "reward_workers",
}
UNITS = {"Mi": 2**20, "Gi": 2**30}


def complaints(resources):
    """Says what does not fit together."""
    found = []
    for pod in manifests.pods(resources):
        found += [f"{pod.name}: {text}" for text in _pod(pod, resources)]
    for check in (_namespaces, _selectors, _scalers, _network, _certificates, _metrics):
        found += check(resources)
    return found


def _pod(pod, resources):
    yield from _security(pod)
    yield from _volumes(pod, resources)
    yield from _grace(pod)
    for container in pod.containers:
        name = container["name"]
        broken = list(programs.complaints(pod, container, resources))
        yield from (f"{name}: {text}" for text in broken)
        if not broken:
            yield from (f"{name}: {text}" for text in _ports(container, resources))
            yield from (f"{name}: {text}" for text in _probes(container))
            yield from (f"{name}: {text}" for text in _size(container))
        yield from (f"{name}: {text}" for text in _mounts(pod, container, resources))
    if pod.owner["kind"] == "JobSet":
        yield from _jobset(pod)


def _security(pod):
    """The profile `restricted`, and what the programs need besides."""
    context = pod.spec.get("securityContext", {})
    if not (context.get("runAsNonRoot") and context.get("runAsUser")):
        yield "securityContext must have runAsNonRoot and a numeric runAsUser"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "securityContext.seccompProfile must be RuntimeDefault"
    if pod.spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken must be false"
    for container in pod.containers:
        own = container.get("securityContext", {})
        wanted = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        if own != wanted:
            yield f"securityContext of {container['name']} must be {wanted}"
        # Sockets have mode 0600, and temporary files are written in a read-only image.
        if "/tmp" not in [mount["mountPath"] for mount in container.get("volumeMounts", ())]:
            yield f"{container['name']} must have a volume at /tmp"


def _volumes(pod, resources):
    used = {m["name"] for c in pod.containers for m in c.get("volumeMounts", ())}
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", ())}
    for name in sorted(used ^ set(volumes)):
        yield f"volume {name} is {'not defined' if name in used else 'not mounted'}"
    for name, volume in volumes.items():
        content = _content(volume, resources)
        if content is None:
            yield f"volume {name} is of nothing that is defined or documented"
        if "secret" in volume and pod.spec["securityContext"].get("fsGroup") is None:
            yield f"volume {name} can't be read without fsGroup"
        if "secret" in volume and volume["secret"].get("defaultMode", 0o644) & 0o337:
            yield f"volume {name} must have defaultMode 0440 or 0400: programs refuse others"


def _content(volume, resources):
    """Files of a volume; an empty set where they are not known, None if it is not there."""
    if "configMap" in volume:
        name = volume["configMap"]["name"]
        found = [r for r in manifests.of_kind(resources, "ConfigMap") if _name(r) == name]
        return {key for r in found for key in r.get("data", {})} or None
    if "secret" in volume:
        return SECRETS.get(volume["secret"]["secretName"])
    if "persistentVolumeClaim" in volume:
        claims = [_name(r) for r in manifests.of_kind(resources, "PersistentVolumeClaim")]
        return set() if volume["persistentVolumeClaim"]["claimName"] in claims else None
    return set() if "emptyDir" in volume else None


def _mounts(pod, container, resources):
    """Each path in a flag is on a volume, and there if the volume's files are known."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", ())}
    mounts = container.get("volumeMounts", ())
    for argument in container["args"]:
        flag, _, value = argument.partition("=")
        path = value.removeprefix("unix:")
        if not path.startswith("/"):
            continue
        on = [m for m in mounts if PurePosixPath(path).is_relative_to(m["mountPath"])]
        if not on:
            yield f"{flag} {path} is on no volume"
            continue
        files = _content(volumes.get(on[0]["name"], {}), resources) or set()
        rest = str(PurePosixPath(path).relative_to(on[0]["mountPath"]))
        if files and rest not in {".", *files}:
            yield f"{flag} {path} is not in volume {on[0]['name']}: {sorted(files)}"


def _grace(pod):
    """The kubelet waits for the trainer, then for the server to drain."""
    needed = MARGIN_S
    for container in pod.containers:
        if (drain := manifests.flag(container, "drain-s")) is not None:
            needed += float(drain) + LAME_DUCK_S
        if (timeout := manifests.flag(container, "reward-timeout")) is not None:
            needed += float(timeout)
    grace = pod.spec.get("terminationGracePeriodSeconds", 30)
    if grace < needed:
        yield f"terminationGracePeriodSeconds must be >= {needed:g}, got {grace}"


def _ports(container, resources):
    """Ports of flags, container, probes and the Service are the same."""
    flags = ("listen", "health-listen", "metrics-listen", "coordinator")
    given = [manifests.flag(container, name) for name in flags]
    listening = {manifests.port_of(a) for a in given if a and not a.startswith("unix:")}
    named = {port["containerPort"] for port in container.get("ports", ())}
    if listening != named:
        yield f"ports must be {sorted(listening)}, got {sorted(named)}"
    if (workers := manifests.flag(container, "workers")) is None:
        return
    host, _, port = workers.removeprefix("dns:///").rpartition(":")
    services = [s for s in manifests.of_kind(resources, "Service") if _name(s) == host]
    if not services:
        yield f"--workers names {host}, which is no Service"
        return
    (service,) = services
    if service["spec"].get("clusterIP") != "None":
        yield f"Service {host} must be headless"
    for pod in manifests.pods(resources):
        if _matches(service["spec"]["selector"], pod.labels):
            for target in pod.containers:
                listen = manifests.flag(target, "listen")
                if not listen.endswith(f":{port}"):
                    yield f"--workers has port {port}, {target['name']} listens on {listen}"
                ports = {p["name"]: p["containerPort"] for p in target["ports"]}
                for entry in service["spec"]["ports"]:
                    real = ports.get(entry["targetPort"], entry["targetPort"])
                    if (entry["port"], real) != (int(port), int(port)):
                        yield f"Service {host} must have port {port}, got {entry}"


def _probes(container):
    health = manifests.flag(container, "health-listen")
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    if health is None:
        return
    for kind in kinds:
        probe = container.get(kind)
        if probe is None:
            yield f"{kind} is missing"
            continue
        if "grpc" in probe and probe["grpc"]["port"] != manifests.port_of(health):
            yield f"{kind} asks port {probe['grpc']['port']}, health is on {health}"
        if "exec" in probe:
            yield from (f"{kind}: {text}" for text in programs.probe_complaints(container, probe))
    startup = container.get("startupProbe", {})
    budget = startup.get("periodSeconds", 10) * startup.get("failureThreshold", 3)
    if budget < 2 * START_TIMEOUT_S:
        yield f"startupProbe must allow {2 * START_TIMEOUT_S:g} s, got {budget}"


def _size(container):
    """Slots and their memory are within the limits."""
    limits = container["resources"].get("limits", {})
    slots, child = (manifests.flag(container, name) for name in ("slots", "max-child-mb"))
    if manifests.flag(container, "rewards") is None:
        return
    if slots is None or child is None:
        yield "--slots and --max-child-mb must be given: a container does not see its limits"
        return
    if int(slots) > _cpus(limits.get("cpu", "0")):
        yield f"--slots must be <= the CPU limit {limits.get('cpu')}, got {slots}"
    # One child more than slots is warm.
    needed = (int(slots) + 1) * int(child) * 2**20 + OVERHEAD_BYTES
    if needed > _bytes(limits.get("memory", "0Mi")):
        yield f"memory limit must be >= {needed >> 20}Mi, got {limits.get('memory')}"


def _jobset(pod):
    spec = pod.owner["spec"]
    names = [job["name"] for job in spec["replicatedJobs"]]
    if spec["coordinator"]["replicatedJob"] not in names:
        yield f"coordinator must be one of {names}"
    if not spec["network"].get("enableDNSHostnames"):
        yield "enableDNSHostnames must be true"
    for job in spec["replicatedJobs"]:
        counts = job["template"]["spec"]
        if counts["parallelism"] != counts["completions"]:
            yield f"parallelism must be completions, got {counts['parallelism']}"
        for rule in counts["podFailurePolicy"]["rules"]:
            if rule["onExitCodes"]["containerName"] not in [c["name"] for c in pod.containers]:
                yield f"podFailurePolicy names no container: {rule}"
    sidecars = pod.spec["initContainers"]
    if any(sidecar.get("restartPolicy") != "Always" for sidecar in sidecars):
        yield "initContainers must be sidecars (restartPolicy: Always)"
    listen = [manifests.flag(sidecar, "listen") for sidecar in sidecars]
    for container in pod.spec["containers"]:
        if manifests.flag(container, "reward-endpoint") not in listen:
            yield f"--reward-endpoint must be one of {listen}"


def _namespaces(resources):
    (namespace,) = manifests.of_kind(resources, "Namespace")
    for resource in resources:
        if resource is namespace:
            continue
        if (found := resource["metadata"].get("namespace")) != _name(namespace):
            yield f"{resource['kind']} {_name(resource)} must be in {_name(namespace)}, got {found}"


def _selectors(resources):
    """Selectors select pods, and a Deployment its own."""
    labels = [pod.labels for pod in manifests.pods(resources)]
    for resource in resources:
        kind, spec = resource["kind"], resource.get("spec", {})
        selectors = []
        if kind == "Service":
            selectors = [spec["selector"]]
        elif kind in ("PodDisruptionBudget", "PodMonitor"):
            selectors = [spec["selector"]["matchLabels"]]
        elif kind == "Deployment":
            selectors = [spec["selector"]["matchLabels"]]
            labels_here = spec["template"]["metadata"]["labels"]
            for constraint in spec["template"]["spec"].get("topologySpreadConstraints", ()):
                selectors.append(constraint["labelSelector"]["matchLabels"])
            if not all(_matches(selector, labels_here) for selector in selectors):
                yield f"Deployment {_name(resource)} must select its own pods"
        elif kind == "NetworkPolicy":
            peers = [peer for rule in spec.get("ingress", ()) for peer in rule["from"]]
            selectors = [spec["podSelector"]["matchLabels"]]
            selectors += [
                peer["podSelector"]["matchLabels"]
                for peer in peers
                if "namespaceSelector" not in peer
            ]
        for selector in selectors:
            if not any(_matches(selector, pod) for pod in labels):
                yield f"{kind} {_name(resource)} selects no pod: {selector}"


def _scalers(resources):
    deployments = [_name(r) for r in manifests.of_kind(resources, "Deployment")]
    scalers = manifests.of_kind(resources, "HorizontalPodAutoscaler", "ScaledObject")
    targets = [scaler["spec"]["scaleTargetRef"]["name"] for scaler in scalers]
    for target in targets:
        if target not in deployments:
            yield f"an autoscaler names {target}, which is no Deployment"
        if targets.count(target) > 1:
            yield f"two autoscalers name {target}"
    for deployment in manifests.of_kind(resources, "Deployment"):
        if ("replicas" in deployment["spec"]) == (_name(deployment) in targets):
            yield f"Deployment {_name(deployment)} must have an autoscaler or replicas, not both"


def _metrics(resources):
    """What Prometheus is asked for exists, and it may come and get it."""
    for monitor in manifests.of_kind(resources, "PodMonitor"):
        wanted = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
        for pod in manifests.pods(resources):
            if not _matches(monitor["spec"]["selector"]["matchLabels"], pod.labels):
                continue
            ports = {p["name"]: p["containerPort"] for c in pod.containers for p in c["ports"]}
            for name in wanted:
                if name not in ports:
                    yield f"PodMonitor wants port {name} of {pod.name}, which has {sorted(ports)}"
                elif ports[name] not in _open_ports(pod, resources):
                    yield f"NetworkPolicy lets nobody in at {ports[name]} of {pod.name}"
    for scaler in manifests.of_kind(resources, "ScaledObject"):
        if not manifests.of_kind(resources, "PodMonitor"):
            yield "a ScaledObject needs a PodMonitor"
        for trigger in scaler["spec"]["triggers"]:
            query = trigger["metadata"].get("query", "")
            names = set(re.findall(r"reward_\w+", query))
            if names - METRICS:
                yield f"nobody has the metrics {sorted(names - METRICS)}"
            namespace = scaler["metadata"]["namespace"]
            if query and f'namespace="{namespace}"' not in query:
                yield f"the query must be about {namespace}, got {query}"


def _open_ports(pod, resources):
    """Ports at which a NetworkPolicy lets somebody in."""
    return {
        port["port"]
        for policy in manifests.of_kind(resources, "NetworkPolicy")
        if _matches(policy["spec"]["podSelector"]["matchLabels"], pod.labels)
        for rule in policy["spec"]["ingress"]
        for port in rule.get("ports", ())
    }


def _network(resources):
    """Workers are reached by trainers on the port they listen on, and reach nobody."""
    for pod in manifests.pods(resources):
        policies = [
            policy["spec"]
            for policy in manifests.of_kind(resources, "NetworkPolicy")
            if _matches(policy["spec"]["podSelector"]["matchLabels"], pod.labels)
        ]
        if not any("Ingress" in policy["policyTypes"] for policy in policies):
            yield f"{pod.name} may be reached by everybody"
        named = {p["containerPort"] for c in pod.containers for p in c.get("ports", ())}
        ports = _open_ports(pod, resources)
        for port in sorted(ports - named):
            yield f"NetworkPolicy of {pod.name} has port {port}, which nobody listens on"
        if pod.owner["kind"] != "Deployment":
            continue
        if not any("Egress" in policy["policyTypes"] for policy in policies):
            yield f"{pod.name} may reach everybody"
        if any(policy.get("egress") for policy in policies):
            yield f"{pod.name} may reach somebody"
        listen = {
            manifests.port_of(flag)
            for c in pod.containers
            if (flag := manifests.flag(c, "listen")) is not None
        }
        for port in sorted(listen - ports):
            yield f"{pod.name} listens on {port}, where NetworkPolicy lets nobody in"


def _certificates(resources):
    """Certificates of cert-manager are those that pods want, and name what is dialled."""
    certificates = manifests.of_kind(resources, "Certificate")
    issuers = [_name(issuer) for issuer in manifests.of_kind(resources, "Issuer")]
    made = {c["spec"]["secretName"]: c["spec"].get("dnsNames", []) for c in certificates}
    for certificate in certificates:
        if (issuer := certificate["spec"]["issuerRef"]["name"]) not in issuers:
            yield f"Certificate {_name(certificate)} must have one of {issuers}, got {issuer}"
    for pod in manifests.pods(resources) if certificates else ():
        secrets = [v["secret"]["secretName"] for v in pod.spec["volumes"] if "secret" in v]
        for secret in secrets:
            if secret.endswith("-tls") and secret not in made:
                yield f"no Certificate makes Secret {secret}"
        for container in pod.containers:
            if manifests.flag(container, "tls-cert") is None:
                continue
            services = [
                _name(service)
                for service in manifests.of_kind(resources, "Service")
                if _matches(service["spec"]["selector"], pod.labels)
            ]
            names = [name for secret in secrets for name in made.get(secret, ())]
            if not set(services) <= set(names):
                yield f"the certificate of {pod.name} must name {services}, got {names}"


def _matches(selector, labels):
    return selector.items() <= labels.items()


def _name(resource):
    return resource["metadata"]["name"]


def _cpus(text):
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def _bytes(text):
    return int(text[:-2]) * UNITS[text[-2:]]
