# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A name server for tests, as a headless Kubernetes Service has: a name with many addresses."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess

import pytest

from tests.integration import service

NAME = "reward-workers.test"
# Of its own, since resolv.conf holds no port.
_ADDRESS = "127.53.0.1"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Mounts a resolv.conf that only this process and its children see.
_SCRIPT = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


class NameServer:
    """dnsmasq; commands that are started with `prefix` ask it and nobody else."""

    def __init__(self, folder, program):
        """Starts it without any address."""
        self._hosts = folder / "hosts"
        resolv = folder / "resolv.conf"
        resolv.write_text(f"nameserver {_ADDRESS}\noptions timeout:1 attempts:2\n")
        self.prefix = ("unshare", "-m", "sh", "-c", _SCRIPT, "sh", str(resolv))
        self._hosts.write_text("")
        self.process = subprocess.Popen(
            [
                *(program, "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file"),
                *(
                    f"--listen-address={_ADDRESS}",
                    "--bind-interfaces",
                    f"--addn-hosts={self._hosts}",
                ),
                *("--user=root", "--pid-file=", "--local=/test/"),
            ],
            stdin=subprocess.DEVNULL,
        )
        service.until(self._answers)

    def _answers(self):
        assert self.process.poll() is None, f"dnsmasq could not be started on {_ADDRESS}"
        with contextlib.suppress(OSError), socket.create_connection((_ADDRESS, 53), 1):
            return True
        return False

    def list(self, addresses):
        """Gives the name these addresses."""
        self._hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))
        self.process.send_signal(signal.SIGHUP)

    def end(self):
        """Stops it."""
        self.process.kill()
        self.process.wait(30)


@contextlib.contextmanager
def name_server(folder):
    """A name server for the block, or a skipped test where none can be had."""
    program = shutil.which("dnsmasq", path=_PATH)
    if program is None:
        pytest.skip("dnsmasq is missing: apt-get install -y dnsmasq-base, or make test-deploy")
    if os.geteuid() != 0:
        pytest.skip("a name server and mount namespaces need root")
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespace can be made: {probe.stderr.decode().strip()}")
    running = NameServer(folder, program)
    try:
        yield running
    finally:
        running.end()
