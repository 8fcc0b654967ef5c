# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A network namespace behind a virtual cable that tests can cut, throttle and mend."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess

import pytest

_TOOLS = ("ip", "tc", "iptables")
_numbers = itertools.count()


def run(*args):
    """Runs a command; its output is part of the error if it fails."""
    done = subprocess.run(
        [str(arg) for arg in args], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(done.args)} failed: {done.stderr.strip()}")


class Node:
    """Another machine, as far as the network can tell: processes are started with `prefix`."""

    def __init__(self):
        """Chooses names and addresses."""
        number = os.getpid() * 8 + next(_numbers)
        self.name = f"sw{number}"
        self.prefix = ("ip", "netns", "exec", self.name)
        # 198.18.0.0/15 is set aside for tests of networks.
        net = f"198.{18 + number // 8192 % 2}.{number // 32 % 256}.{number % 32 * 8}"
        base, _, last = net.rpartition(".")
        self.here, self.host, self.nobody = (f"{base}.{int(last) + i}" for i in (1, 2, 3))

    def make(self):
        """Makes the namespace and its cable."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.name, "type", "veth", "peer", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/29", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        self.run("ip", "addr", "add", f"{self.host}/29", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.mend()

    def run(self, *args):
        """Runs a command inside."""
        run(*self.prefix, *args)

    def cut(self):
        """Drops everything that arrives: connections stay half open, new ones see a black hole."""
        self.run("iptables", "-I", "INPUT", "-j", "DROP")

    def unplug(self):
        """Takes the interface of the other side down."""
        self.run("ip", "link", "set", "eth0", "down")

    def throttle(self, rate):
        """Limits what is sent to the node to a rate such as "2mbit"."""
        run(*f"tc qdisc replace dev {self.name} root tbf rate {rate} burst 20kb limit 4mb".split())

    def mend(self):
        """Undoes all of the above."""
        self.run("iptables", "-F", "INPUT")
        self.run("ip", "link", "set", "eth0", "up")
        run("tc", "qdisc", "replace", "dev", self.name, "root", "pfifo")

    def remove(self):
        """Removes the namespace; the cable goes with it."""
        for what in ("link", "netns"):
            with contextlib.suppress(OSError):  # making it may have failed half-way
                run("ip", what, "del", self.name)


@contextlib.contextmanager
def node():
    """A node for the block, or a skipped test where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"network namespaces need {', '.join(missing)}")
    made = Node()
    try:
        try:
            made.make()
        except OSError as error:
            pytest.skip(f"no network namespace can be made: {error}")
        yield made
    finally:
        made.remove()
