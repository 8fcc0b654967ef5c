# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of manifests on this machine: network namespaces, mounted volumes, names in /etc/hosts.

The programs run with the arguments of the manifests, unchanged.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess

import pytest

from tests.deploy import manifests, programs
from tests.integration import netns

_TOOLS = ("ip", "unshare", "mount", "hostname")
_numbers = itertools.count()


class Cluster:
    """A bridge that stands for the network of pods; this process is the kubelet."""

    def __init__(self, folder, resources, secrets):
        """Takes a folder for volumes, the manifests and a folder of Secrets."""
        number = (os.getpid() * 4 + next(_numbers)) % 2**15
        self.bridge = f"pods{number}"
        self.net = f"198.{18 + number % 2}.{number // 2 % 256}"
        self.folder, self.resources, self.secrets = folder, resources, secrets
        self.hosts = folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n", encoding="utf-8")
        self.pods = []

    def make(self):
        """Makes the bridge."""
        netns.run("ip", "link", "add", self.bridge, "type", "bridge")
        netns.run("ip", "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        netns.run("ip", "link", "set", self.bridge, "up")

    def pod(self, owner, index=0, *, image=None):
        """A pod of a Deployment or JobSet, by kind and number; without image, of this checkout."""
        template = next(p for p in manifests.pods(self.resources) if p.owner["kind"] == owner)
        made = Pod(self, template, index, image)
        self.pods.append(made)
        made.make()
        with self.hosts.open("a", encoding="utf-8") as file:
            file.write(f"{made.address} {made.hostname} {' '.join(made.names())}\n")
        return made

    def remove(self):
        """Removes all namespaces and the bridge."""
        for pod in self.pods:
            with contextlib.suppress(OSError):  # making it may have failed half-way
                netns.run("ip", "netns", "del", pod.name)
        with contextlib.suppress(OSError):
            netns.run("ip", "link", "del", self.bridge)


class Pod:
    """One pod: `prefix` starts a program in a container of it."""

    def __init__(self, cluster, template, index, image):
        """Chooses name and address."""
        self.cluster, self.template, self.index, self.image = cluster, template, index, image
        self.number = len(cluster.pods) + 2
        self.name = f"{cluster.bridge}n{self.number}"
        self.address = f"{cluster.net}.{self.number}"
        self.folder = cluster.folder / self.name

    def make(self):
        """Makes its network and its volumes."""
        cable = f"{self.cluster.bridge}v{self.number}"
        netns.run("ip", "netns", "add", self.name)
        netns.run(*("ip", "link", "add", cable, "type", "veth", "peer", "eth0", "netns", self.name))
        netns.run("ip", "link", "set", cable, "master", self.cluster.bridge, "up")
        inside = ("ip", "-n", self.name)
        netns.run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        netns.run(*inside, "link", "set", "eth0", "up")
        netns.run(*inside, "link", "set", "lo", "up")
        self.folder.mkdir()
        for volume in self.template.spec["volumes"]:
            self._fill(volume)

    def _fill(self, volume):
        folder = self.volume(volume["name"])
        if "persistentVolumeClaim" in volume:
            folder.mkdir(exist_ok=True)
        elif "configMap" in volume:
            folder.mkdir()
            source = manifests.one(self.cluster.resources, "ConfigMap", volume["configMap"]["name"])
            for key, text in source["data"].items():
                (folder / key).write_text(text, encoding="utf-8")
        elif "secret" in volume:
            shutil.copytree(self.cluster.secrets / volume["secret"]["secretName"], folder)
            for file in folder.iterdir():
                self._protect(file, volume["secret"]["defaultMode"])
        else:
            folder.mkdir()
        if "emptyDir" in volume or "persistentVolumeClaim" in volume:
            folder.chmod(0o2777)
            os.chown(folder, 0, self.template.spec["securityContext"]["fsGroup"])

    def _protect(self, file, mode):
        """As a Secret's files are: of root, and of the group fsGroup. Root itself needs none."""
        file.chmod(mode if self.image else 0o400)
        os.chown(file, 0, self.template.spec["securityContext"]["fsGroup"])

    def volume(self, name):
        """Folder of a volume on this machine; a claim has one for all pods."""
        (volume,) = [v for v in self.template.spec["volumes"] if v["name"] == name]
        shared = "persistentVolumeClaim" in volume
        return (self.cluster.folder if shared else self.folder) / name

    @property
    def hostname(self):
        """Its own name, by which others find it."""
        owner = self.template.owner
        if owner["kind"] != "JobSet":
            return self.name
        name, (job,) = owner["metadata"]["name"], owner["spec"]["replicatedJobs"]
        return f"{name}-{job['name']}-0-{self.index}.{name}"

    def names(self):
        """Names of Services that stand for it."""
        for service in manifests.of_kind(self.cluster.resources, "Service"):
            if service["spec"]["selector"].items() <= self.template.labels.items():
                yield service["metadata"]["name"]

    def container(self, name):
        """A container of the manifest."""
        return next(c for c in self.template.containers if c["name"] == name)

    def environment(self, name):
        """Variables of a container."""
        return programs.environment(self.template, self.container(name), self.index)

    def arguments(self, name):
        """Arguments of a container, with its variables put in."""
        container, values = self.container(name), self.environment(name)
        return [programs.expand(argument, values) for argument in container["args"]]

    def prefix(self, name):
        """What comes before a program so that it runs in a container."""
        mounts = self.container(name)["volumeMounts"]
        binds = [(self.volume(mount["name"]), mount["mountPath"]) for mount in mounts]
        if self.image:
            mounts = self.image.script([*binds, (self.cluster.hosts, "/etc/hosts")])
            script = f'{mounts}\nexec {self.image.start(**self.environment(name))} "$@"'
        else:
            script = f'{self._on_machine(binds)}\nexec "$@"'
        inside = ("ip", "netns", "exec", self.name, "unshare", "--uts")
        return (*inside, "sh", "-ec", f"hostname {self.hostname}\n{script}", "sh")

    def _on_machine(self, binds):
        """Volumes over this machine's own folders, for programs of this checkout."""
        work = self.folder / "etc"
        lines = [
            f"mkdir -p {work} && mount -t tmpfs tmpfs {work} && mkdir {work}/up {work}/work",
            f"mount -t overlay -o lowerdir=/etc,upperdir={work}/up,workdir={work}/work etc /etc",
            f"mount --bind {self.cluster.hosts} /etc/hosts",
            "mount -t tmpfs tmpfs /run",
        ]
        for source, target in binds:
            # The checkout and the volumes may themselves be in /tmp.
            if target != "/tmp":
                lines.append(f"mkdir -p {target} && mount --bind {source} {target}")
        return "\n".join(lines)


@contextlib.contextmanager
def cluster(folder, resources, secrets):
    """A cluster for the block, or a skipped test where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("pods need root")
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"pods need {', '.join(missing)}")
    made = Cluster(folder, resources, secrets)
    try:
        try:
            made.make()
        except OSError as error:
            pytest.skip(f"no network of pods can be made: {error}")
        yield made
    finally:
        made.remove()


def secrets_of_readme(folder):
    """Runs the README's lines for certificates and token; returns a folder for each Secret."""
    block = manifests.readme_block("openssl")
    made = folder / "made"
    made.mkdir()
    # Without a server `kubectl -n ... create secret` can say what it would create.
    offline = (
        'kubectl() { [ "$1" = -n ] || return 0;'
        ' command kubectl "$@" --dry-run=client -o yaml; echo ---; }\n'
    )
    done = subprocess.run(
        ["bash", "-euc", offline + block],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = manifests.of_kind(manifests.parse(done.stdout), "Secret")
    manifests.write_secrets(found, folder)
    return {secret["metadata"]["name"]: set(secret["data"]) for secret in found}
