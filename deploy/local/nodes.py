# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The "nodes" of a job that one machine plays: a reward server each, and workers of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import sys
from pathlib import Path

import grpc
from shardward import targets
from shardward.v1 import reward_pb2, reward_pb2_grpc

from deploy.local.processes import Processes

SERVER_START_S = 180.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one "node" runs besides its trainer.

    Attributes:
        index: number of the node, from 0.
        server: address of its reward server.
        workers: addresses of its reward workers; none: the server runs the functions itself.
    """

    index: int
    server: str
    workers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardFiles:
    """What reward servers and workers are started with.

    Attributes:
        tokenizer: tokenizer.json or its folder.
        rewards: TOML file of reward functions.
        slots: child processes of each worker, or of each server without workers.
    """

    tokenizer: Path
    rewards: Path
    slots: int = 1


def make_nodes(folder: str, *, nodes: int, workers: int) -> list[Node]:
    """Names the sockets of some nodes, all in one folder."""
    return [
        Node(
            index=i,
            server=f"unix:{folder}/server{i}",
            workers=tuple(f"unix:{folder}/worker{i}.{w}" for w in range(workers)),
        )
        for i in range(nodes)
    ]


def free_port() -> int:
    """Finds a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def start_servers(processes: Processes, nodes: list[Node], files: RewardFiles) -> None:
    """Starts the workers and servers of all nodes; returns when the servers are ready.

    Raises:
        Failed: one of them ended, or took too long.
    """
    module = (sys.executable, "-m", "reward_server")
    common = ("--tokenizer", str(files.tokenizer), "--rewards", str(files.rewards))
    slots = ("--slots", str(files.slots))
    for node in nodes:
        for number, worker in enumerate(node.workers):
            name = f"node{node.index} worker" + (f"{number}" if len(node.workers) > 1 else "")
            command = [*module, "worker", "--listen", worker, *common, *slots]
            processes.start(name, command, serves=True)
    for node in nodes:
        rows = ("--workers", ",".join(node.workers)) if node.workers else slots
        name = f"node{node.index} server"
        command = [*module, "serve", "--listen", node.server, *common, *rows]
        processes.start(name, command, serves=True)
    waiting = list(nodes)

    def not_ready() -> list[str]:
        while waiting and is_ready(waiting[0].server):
            waiting.pop(0)
        return [f"node{node.index} server" for node in waiting]

    processes.wait(not_ready, timeout_s=SERVER_START_S, what="reward servers")


def is_ready(address: str) -> bool:
    """Asks a reward server whether it is ready, as a user would."""
    command = [sys.executable, "-m", "reward_server", "check", address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def rows_scored(address: str) -> int:
    """Asks a reward server how many rows it has scored."""
    options = (*targets.OPTIONS, ("grpc.enable_http_proxy", 0))
    dialler = targets.Dialler(address, lambda target: grpc.insecure_channel(target, options))
    with contextlib.closing(dialler):
        stub = reward_pb2_grpc.RewardServiceStub(dialler.channel())
        response = stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest(), timeout=10)
        rows: int = response.info.rows_scored
        return rows
