# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `reward-server`: serve, worker, check, score, rewards.

Exit codes: 0 ok, 1 rows without a reward, 2 usage, 3 configuration, 4 unreachable.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, scoring_pb2_grpc

from reward_server import lifecycle, log, rewards_cli, try_out
from reward_server.batch import Scorer, StartError
from reward_server.check import Unreachable, check
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.credentials import ClientCredentials, ServerCredentials
from reward_server.decode import Tokenizer
from reward_server.handler import QUEUE_BYTES, version
from reward_server.listen import Listen
from reward_server.pool import Pool
from reward_server.router import WorkerRouter
from reward_server.score import score_file
from reward_server.server import RewardService, ScoringService

# What a trainer on a laptop is pointed at.
LISTEN = "unix:/tmp/reward.sock"

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIG, EXIT_UNREACHABLE = 0, 1, 2, 3, 4

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

# Smallest values of flags that are numbers.
_LEAST = {"slots": 1, "max_child_mb": 1, "max_queue_mb": 1, "drain_s": 0, "worker_slots": 1}


def build_parser() -> argparse.ArgumentParser:
    """The flags of all commands."""
    parser = argparse.ArgumentParser(prog="reward-server", description="Rewards over gRPC.")
    parser.add_argument("--version", action="version", version=f"shardward {version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="answer training processes")
    worker = commands.add_parser("worker", help="run reward functions for reward servers")
    serve.add_argument(
        "--listen",
        default=LISTEN,
        help=f"unix:PATH or HOST:PORT, port 0 works; default: {LISTEN}",
    )
    worker.add_argument("--listen", required=True, help="unix:PATH or HOST:PORT, port 0 works")
    for command in (serve, worker):
        command.add_argument("--tokenizer", required=True, help="tokenizer.json or its folder")
        command.add_argument("--rewards", help="TOML file of reward functions")
        command.add_argument("--slots", type=int, help="child processes; default: one per core")
        command.add_argument(
            "--max-child-mb",
            type=int,
            default=PoolConfig().max_child_rss_bytes >> 20,
            help="MiB of memory of a child, above which it is replaced",
        )
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
        command.add_argument("--tls-cert", metavar="FILE", help="certificate to show, PEM")
        command.add_argument("--tls-key", metavar="FILE", help="private key of that, PEM")
        command.add_argument(
            "--tls-client-ca", metavar="FILE", help="CA that must have signed callers' certificates"
        )
        command.add_argument("--token-file", metavar="FILE", help="token that callers must show")
        command.add_argument(
            "--health-listen", metavar="HOST:PORT", help="port for health checks only, without TLS"
        )
        command.add_argument(
            "--metrics-listen", metavar="HOST:PORT", help="port for Prometheus, without TLS"
        )
        command.add_argument("--log-json", action="store_true", help="log JSON lines")
        command.add_argument(
            "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
        )
    serve.add_argument(
        "--workers",
        help="HOST:PORT,..., dns:///NAME:PORT or file:PATH; default: run the functions here",
    )
    serve.add_argument(
        "--worker-slots",
        type=int,
        help="slots behind each address, for load balancers; default: what a worker says",
    )
    _add_client_flags(serve, "--workers-", "the workers")
    ask = commands.add_parser("check", help="say what a server or worker is, or what is wrong")
    ask.add_argument("address", metavar="ADDR", help="unix:PATH or HOST:PORT")
    ask.add_argument("--timeout-s", type=float, default=5.0, help="seconds to wait")
    _add_client_flags(ask, "--", "ADDR")
    score = commands.add_parser("score", help="score the rows of a JSON-lines file")
    score.add_argument("file", metavar="FILE", type=Path, help="a row in each line")
    score.add_argument("--rewards", required=True, help="TOML file of reward functions")
    score.add_argument("--tokenizer", help="for rows with completion_ids")
    score.add_argument("--out", type=Path, metavar="FILE", help="scored rows; may be FILE itself")
    score.add_argument(
        "--only-failed", action="store_true", help="leave rows that have a reward as they are"
    )
    score.add_argument("--slots", type=int, help="child processes; default: one per core")
    rewards = commands.add_parser(
        "rewards",
        help="list the built-in functions, show or test one",
        usage="reward-server rewards [NAME | test FN [options]]",
    )
    rewards.add_argument("name", metavar="NAME", nargs="?", help="built-in to show, or `test`")
    rewards.add_argument(
        "fn", metavar="FN", nargs="?", help="file.py:function, package.module:function or built-in"
    )
    rewards.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="column of the example; NAME:=JSON for other values than text",
    )
    rewards.add_argument("--completion", metavar="TEXT", help="completion of the example")
    rewards.add_argument("--rewards", help="TOML file; FN is then a name in it")
    rewards.add_argument("--timeout-s", type=float, help="seconds for one input; default: 10")
    rewards.add_argument("--slots", type=int, help="child processes; default: one per core")
    return parser


def _add_client_flags(parser: argparse.ArgumentParser, prefix: str, peer: str) -> None:
    """Flags of a caller; `_client_credentials` reads them."""
    for name, text in (
        ("ca", f"CA of {peer}, PEM; with it TLS is used"),
        ("cert", f"certificate to show {peer}, PEM"),
        ("key", "private key of that, PEM"),
    ):
        parser.add_argument(f"{prefix}tls-{name}", dest=f"client_{name}", metavar="FILE", help=text)
    parser.add_argument(
        f"{prefix}token-file", dest="client_token", metavar="FILE", help=f"token to show {peer}"
    )


def _client_credentials(args: argparse.Namespace, prefix: str) -> ClientCredentials:
    return ClientCredentials.load(
        prefix=prefix,
        ca=args.client_ca,
        cert=args.client_cert,
        key=args.client_key,
        token_file=args.client_token,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its code."""
    args = build_parser().parse_args(argv)
    try:
        _check_numbers(args)
        code = _COMMANDS[args.command](args)
    except Unreachable as error:
        print(error, file=sys.stderr)
        code = EXIT_UNREACHABLE
    except (ConfigError, StartError) as error:
        print(f"reward-server {args.command}: {error}", file=sys.stderr)
        code = EXIT_CONFIG
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _check_numbers(args: argparse.Namespace) -> None:
    for name, least in _LEAST.items():
        value = getattr(args, name, None)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(f"`--{name.replace('_', '-')}` must be >= {least}, got {value}.")


def _run(args: argparse.Namespace) -> int:
    log.configure(level=args.log_level, as_json=args.log_json)
    listen = _listen(args)
    tokenizer = _load_tokenizer(args.tokenizer)
    scorer = _scorer(args, tokenizer)
    service = _REWARD_SERVICE if args.command == "serve" else _SCORING_SERVICE
    asyncio.run(
        lifecycle.run(
            listen=listen,
            drain_s=args.drain_s,
            max_queue_bytes=args.max_queue_mb << 20,
            tokenizer=tokenizer,
            scorer=scorer,
            service=service,
        )
    )
    return EXIT_OK


def _listen(args: argparse.Namespace) -> Listen:
    credentials = ServerCredentials.load(
        cert=args.tls_cert,
        key=args.tls_key,
        client_ca=args.tls_client_ca,
        token_file=args.token_file,
    )
    return Listen(
        address=args.listen,
        health_address=args.health_listen,
        metrics_address=args.metrics_listen,
        insecure_bind=args.insecure_bind,
        credentials=credentials,
    )


def _scorer(args: argparse.Namespace, tokenizer: Tokenizer) -> Scorer:
    if args.command == "serve":
        credentials = _client_credentials(args, "--workers-")
        if args.workers is not None:
            if args.slots is not None:
                raise ConfigError(
                    "`--slots` must be given to the workers when `--workers` is used."
                )
            return WorkerRouter(
                args.workers,
                fingerprint=tokenizer.fingerprint,
                credentials=credentials,
                worker_slots=args.worker_slots,
            )
        if credentials.ca or credentials.token or args.worker_slots is not None:
            raise ConfigError(
                "`--worker-slots`, `--workers-tls-ca` and `--workers-token-file` must come with"
                " `--workers`."
            )
    if args.rewards is None:
        raise ConfigError("`--rewards` must name a TOML file of reward functions.")
    return Pool(RewardsConfig.load(args.rewards), args.tokenizer, _pool_config(args))


def _pool_config(args: argparse.Namespace) -> PoolConfig:
    given = {} if args.slots is None else {"slots": args.slots}
    if "max_child_mb" in args:
        given["max_child_rss_bytes"] = args.max_child_mb << 20
    return PoolConfig(**given)


def _load_tokenizer(path: str) -> Tokenizer:
    try:
        return Tokenizer.load(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"`--tokenizer` can't be loaded from {path}: {error}") from error


def _check(args: argparse.Namespace) -> int:
    print(check(args.address, _client_credentials(args, "--"), args.timeout_s))
    return EXIT_OK


def _score(args: argparse.Namespace) -> int:
    # What happened to rows is in the summary.
    log.configure(level="ERROR", as_json=False)
    good = score_file(
        args.file,
        rewards=RewardsConfig.load(args.rewards),
        pool=_pool_config(args),
        tokenizer_path=args.tokenizer,
        out=args.out,
        only_failed=args.only_failed,
    )
    return EXIT_OK if good else EXIT_FAILED


def _rewards(args: argparse.Namespace) -> int:
    log.configure(level="ERROR", as_json=False)
    if args.name != "test":
        if args.fn is not None:
            raise ConfigError(f"{args.name!r} must be `test` before a function, or stand alone.")
        print(
            rewards_cli.list_built_in()
            if args.name is None
            else rewards_cli.show_built_in(args.name)
        )
        return EXIT_OK
    if args.fn is None:
        raise ConfigError("`rewards test` must name a function, like my_rewards.py:short.")
    rewards = None if args.rewards is None else RewardsConfig.load(args.rewards)
    good = try_out.try_out(
        try_out.entry_of(args.fn, rewards, timeout_s=args.timeout_s),
        columns=try_out.columns_of(args.column),
        completion=args.completion,
        pool=_pool_config(args),
    )
    return EXIT_OK if good else EXIT_FAILED


_COMMANDS = {"serve": _run, "worker": _run, "check": _check, "score": _score, "rewards": _rewards}
