# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of two nodes on this machine, in a folder of its own, without systemd.

The nodes are named after loopback addresses, so their names resolve and each can listen on its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue")
NODES = ("127.0.0.1", "127.0.0.2")
_FREEZER = Path("/sys/fs/cgroup/freezer")
HAS_CGROUPS = os.access(_FREEZER, os.W_OK)
KILL_WAIT_S = 120
# A job that is queued again too soon is refused, or ends Debian's slurmd.
CREDENTIAL_S = 10
_START_S = 60.0
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={credential}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=YES
"""


def missing() -> list[str]:
    """What a cluster needs and this machine has not."""
    if os.geteuid() != 0:
        return ["root"]
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # the group is gone
        return []


class Cluster:
    """munged, slurmctld and two slurmd; they end with the context.

    Args:
        folder: for configuration, state and logs; others must be able to enter it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": os.pathsep.join((os.environ["PATH"], "/usr/sbin")),
        }

    def __enter__(self) -> Self:
        """Starts the daemons; returns when both nodes are idle."""
        folder = self.folder
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports = _free_ports(1 + len(NODES))
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr={node} Port={port}"
            " CPUs=8 RealMemory=8000"
            for node, port in zip(NODES, ports[1:], strict=True)
        )
        conf = _CONF.format(
            host=host,
            ports=ports,
            folder=folder,
            nodes=nodes,
            kill_wait=KILL_WAIT_S,
            credential=CREDENTIAL_S,
            proctrack="cgroup" if HAS_CGROUPS else "linuxproc",
        )
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={_FREEZER.parent}\n"
        )
        try:
            self._start(
                *("munged", "--foreground", "--force", f"--key-file={key}"),
                *(f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")),
                f"--socket={folder}/munge.socket",
            )
            self.until((folder / "munge.socket").exists, "munged")
            self._start("slurmctld", "-D")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            self.until(lambda: self._idle() == len(NODES), "idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the daemons, in the reverse order."""
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

        for group in sorted(_FREEZER.glob("slurm_127.0.0.*/**/"), reverse=True):
            group.rmdir()

    def processes(self) -> list[str]:
        """Processes of jobs that live, by Slurm's control groups."""
        files = _FREEZER.glob("slurm_127.0.0.*/**/cgroup.procs")
        return [f"process {line} of {file.parent}" for file in files for line in _lines(file)]

    def _start(self, *command: str) -> None:
        log = (self.folder / f"{command[0]}{command[-1].rpartition('/')[2]}.out").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
            )

    def _idle(self) -> int:
        return self.run("sinfo", "-h", "-N", "-t", "idle", check=False).count("\n")

    def run(
        self, *command: str, check: bool = True, environment: dict[str, str] | None = None
    ) -> str:
        """Runs a client of the cluster and returns what it says."""
        done = subprocess.run(
            command,
            env=environment or self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout

    def until(
        self, condition: Callable[[], bool], what: str, *, timeout_s: float = _START_S
    ) -> None:
        """Waits for a condition; the daemons must live."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            ended = [d.args for d in self._daemons if d.poll() is not None]
            assert not ended, f"{ended} ended while waiting for {what}, see {self.folder}"
            assert time.monotonic() < deadline, f"{what} took more than {timeout_s:.0f} s"
            time.sleep(0.1)
