# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `reward-server`: serve, worker, check.

Exit codes: 0 ok, 2 usage, 3 configuration, 4 unreachable.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from shardward.v1 import (
    reward_pb2,
    reward_pb2_grpc,
    scoring_pb2,
    scoring_pb2_grpc,
    types_pb2,
)

from reward_server import lifecycle, log
from reward_server.batch import Scorer, StartError
from reward_server.channel import CLIENT_OPTIONS
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.handler import QUEUE_BYTES, version
from reward_server.pool import Pool
from reward_server.router import WorkerRouter
from reward_server.server import RewardService, ScoringService

EXIT_OK, EXIT_USAGE, EXIT_CONFIG, EXIT_UNREACHABLE = 0, 2, 3, 4

_REWARD_SERVICE = lifecycle.Service(
    name=reward_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name,
    add=lambda handler, server: reward_pb2_grpc.add_RewardServiceServicer_to_server(
        RewardService(handler), server
    ),
)
_SCORING_SERVICE = lifecycle.Service(
    name=scoring_pb2.DESCRIPTOR.services_by_name["ScoringService"].full_name,
    add=lambda handler, server: scoring_pb2_grpc.add_ScoringServiceServicer_to_server(
        ScoringService(handler), server
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """The flags of all commands."""
    parser = argparse.ArgumentParser(prog="reward-server", description="Rewards over gRPC.")
    parser.add_argument("--version", action="version", version=f"shardward {version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="answer training processes")
    worker = commands.add_parser("worker", help="run reward functions for reward servers")
    for command in (serve, worker):
        command.add_argument("--listen", required=True, help="unix:PATH or HOST:PORT, port 0 works")
        command.add_argument("--tokenizer", required=True, help="tokenizer.json or its folder")
        command.add_argument("--rewards", help="TOML file of reward functions")
        command.add_argument("--slots", type=int, help="child processes; default: one per core")
        command.add_argument(
            "--drain-s", type=float, default=30.0, help="seconds for calls under way at SIGTERM"
        )
        command.add_argument(
            "--max-queue-mb",
            type=int,
            default=QUEUE_BYTES >> 20,
            help="MiB of calls under way; new calls beyond are told to come again",
        )
        command.add_argument(
            "--insecure-bind", action="store_true", help="listen beyond this machine without TLS"
        )
        command.add_argument("--log-json", action="store_true", help="log JSON lines")
        command.add_argument(
            "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
        )
    serve.add_argument(
        "--workers", help="HOST:PORT,... or dns:///NAME:PORT; default: run the functions here"
    )
    check = commands.add_parser("check", help="say what a server or worker is, or what is wrong")
    check.add_argument("address", metavar="ADDR", help="unix:PATH or HOST:PORT")
    check.add_argument("--timeout-s", type=float, default=5.0, help="seconds to wait")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its code."""
    args = build_parser().parse_args(argv)
    try:
        code = _check(args) if args.command == "check" else _run(args)
    except (ConfigError, StartError) as error:
        print(f"reward-server {args.command}: {error}", file=sys.stderr)
        code = EXIT_CONFIG
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run(args: argparse.Namespace) -> int:
    log.configure(level=args.log_level, as_json=args.log_json)
    if args.drain_s < 0:
        raise ConfigError(f"`drain_s` must be >= 0 seconds, got {args.drain_s}.")
    if args.max_queue_mb < 1:
        raise ConfigError(f"`max_queue_mb` must be >= 1 MiB, got {args.max_queue_mb}.")
    tokenizer = _load_tokenizer(args.tokenizer)
    workers = getattr(args, "workers", None)
    if workers is None and args.rewards is None:
        raise ConfigError("`--rewards` must name a TOML file of reward functions.")
    if workers is not None and args.slots is not None:
        raise ConfigError("`--slots` must be given to the workers when `--workers` is used.")
    scorer: Scorer
    if workers is not None:
        scorer = WorkerRouter(workers, fingerprint=tokenizer.fingerprint)
    else:
        config = PoolConfig() if args.slots is None else PoolConfig(slots=args.slots)
        scorer = Pool(RewardsConfig.load(args.rewards), args.tokenizer, config)
    service = _REWARD_SERVICE if args.command == "serve" else _SCORING_SERVICE
    asyncio.run(
        lifecycle.run(
            listen=args.listen,
            insecure_bind=args.insecure_bind,
            drain_s=args.drain_s,
            max_queue_bytes=args.max_queue_mb << 20,
            tokenizer=tokenizer,
            scorer=scorer,
            service=service,
        )
    )
    return EXIT_OK


def _load_tokenizer(path: str) -> Tokenizer:
    try:
        return Tokenizer.load(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"`--tokenizer` can't be loaded from {path}: {error}") from error


def _check(args: argparse.Namespace) -> int:
    """Asks a server or worker for its health and for what it is."""
    address, timeout = args.address, args.timeout_s
    with grpc.insecure_channel(address, CLIENT_OPTIONS) as channel:
        try:
            health = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=True
            )
            info = _info(channel, timeout)
        except grpc.RpcError as error:
            print(
                f"{address} does not answer within {timeout:g} s: {error.code().name}."
                f" Start it: reward-server serve --listen {address} --tokenizer DIR --rewards FILE",
                file=sys.stderr,
            )
            return EXIT_UNREACHABLE
    if health.status != health_pb2.HealthCheckResponse.SERVING:
        state = health_pb2.HealthCheckResponse.ServingStatus.Name(health.status)
        print(f"{address} is {state}: it is starting or draining.", file=sys.stderr)
        return EXIT_UNREACHABLE
    print(f"{address} is SERVING, shardward {info.version}")
    for fn in info.reward_fns:
        columns = ", ".join(fn.required_columns) or "none"
        print(f"  {fn.name}  weight={fn.weight:g}  timeout_s={fn.timeout_s:g}  columns={columns}")
    behind = f"{info.workers} workers" if info.workers else "its own processes"
    print(f"  {info.slots} slots in {behind}, {info.rows_scored} rows scored")
    print(f"  tokenizer {info.tokenizer_fingerprint[:12]}, {info.vocab_size} tokens")
    return EXIT_OK


def _info(channel: grpc.Channel, timeout: float) -> types_pb2.ServiceInfo:
    info: types_pb2.ServiceInfo
    try:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        info = stub.GetInfo(reward_pb2.RewardServiceGetInfoRequest(), timeout=timeout).info
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNIMPLEMENTED:
            raise
        scoring = scoring_pb2_grpc.ScoringServiceStub(channel)
        info = scoring.GetInfo(scoring_pb2.ScoringServiceGetInfoRequest(), timeout=timeout).info
    return info
