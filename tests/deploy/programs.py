# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What the programs themselves say of their arguments in a container."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

from reward_server import cli, discovery
from reward_server.batch import StartError
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.credentials import ServerCredentials
from reward_server.listen import Listen
from tests.deploy import manifests
from trainer import cli as trainer_cli
from trainer import recipes

REWARD, TRAINER = "shardward-reward", "shardward-trainer"


def program(container):
    """Which image a container has, without registry and tag."""
    return container["image"].rpartition("/")[2].partition(":")[0]


def complaints(pod, container, resources):
    """Says what a program would not take."""
    if program(container) == REWARD:
        yield from _reward_server(container, resources)
    elif program(container) == TRAINER:
        yield from _trainer(pod, container)
    else:
        yield f"image {container['image']} is not ours"


def probe_complaints(container, probe):
    """Says what is wrong with the command of a probe."""
    command = probe["exec"]["command"]
    if command[0] != "reward-server":
        yield f"{command[0]} is no program of the image"
        return
    arguments, error = _parse(cli.build_parser(), command[1:])
    if error:
        yield error
        return
    if arguments.command != "check":
        yield f"{arguments.command} is no probe"
        return
    if arguments.address != manifests.flag(container, "listen"):
        yield f"it asks {arguments.address}"
    if arguments.timeout_s >= probe.get("timeoutSeconds", 1):
        yield "--timeout-s must be < timeoutSeconds"


def _reward_server(container, resources):
    parser = cli.build_parser()
    arguments, error = _parse(parser, container["args"])
    if error:
        yield error
        return
    if arguments.command not in ("serve", "worker"):
        yield f"{arguments.command} does not serve"
        return
    try:
        Listen(
            address=arguments.listen,
            health_address=arguments.health_listen,
            credentials=ServerCredentials(cert=b"given" if arguments.tls_cert else b""),
        )
        if getattr(arguments, "workers", None) is not None:
            discovery.parse(arguments.workers)
            return
        PoolConfig(slots=arguments.slots, max_child_rss_bytes=arguments.max_child_mb << 20)
        with tempfile.TemporaryDirectory() as folder:
            write_config_maps(resources, Path(folder))
            RewardsConfig.load(Path(folder, arguments.rewards.removeprefix("/etc/shardward/")))
    except (ConfigError, StartError) as problem:
        yield str(problem)


def write_config_maps(resources, folder):
    """Writes each ConfigMap as a folder of files, as volumes have them."""
    for resource in manifests.of_kind(resources, "ConfigMap"):
        name = re.sub(r"-[a-z0-9]{10}$", "", resource["metadata"]["name"])
        for key, text in resource["data"].items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / key).write_text(text, encoding="utf-8")


def _trainer(pod, container):
    endpoints = []
    for index in range(_processes(pod)):
        values = environment(pod, container, index)
        arguments = [expand(argument, values) for argument in container["args"]]
        _, error = _parse(trainer_cli.make_parser(), arguments)
        if error:
            yield error
            return
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            try:
                config = trainer_cli.parse(arguments)
            except SystemExit:
                yield out.getvalue().strip().splitlines()[-1]
                return
        endpoints.append((config.coordinator, config.num_processes))
        recipes.load(config.recipe)
    if endpoints[0][1] != len(endpoints):
        yield f"--num-processes must be parallelism {len(endpoints)}, got {endpoints[0][1]}"


def _processes(pod):
    return pod.owner["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"]


def environment(pod, container, index):
    """Environment of a container of the pod with an index, as JobSet and Job make it."""
    annotations = {}
    if pod.owner["kind"] == "JobSet":
        name, leader = pod.owner["metadata"]["name"], pod.owner["spec"]["coordinator"]
        host = f"{name}-{leader['replicatedJob']}-{leader['jobIndex']}-{leader['podIndex']}"
        annotations = {
            "jobset.sigs.k8s.io/coordinator": f"{host}.{name}",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
    values = {}
    for entry in container.get("env", ()):
        if "value" in entry:
            values[entry["name"]] = entry["value"]
        else:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            key = re.fullmatch(r"metadata\.annotations\['(.*)'\]", path)[1]
            if key in annotations:
                values[entry["name"]] = annotations[key]
    return values


def expand(argument, values):
    """Puts variables into an argument as the kubelet does: unknown ones stay."""
    return re.sub(r"\$\((\w+)\)", lambda m: values.get(m[1], m[0]), argument)


def _parse(parser, arguments):
    """Parses arguments; returns them or what is wrong."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        try:
            return parser.parse_args(arguments), ""
        except SystemExit:
            return None, out.getvalue().strip().splitlines()[-1]
