# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `reward-server`: what serve, worker, check, score and rewards do.

Their flags and exit codes are in `reward_server.flags`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections.abc import Sequence

from shardward.v1 import reward_pb2, reward_pb2_grpc, scoring_pb2, scoring_pb2_grpc

from reward_server import lifecycle, log, pipes, rewards_cli, try_file, try_out
from reward_server.batch import Scorer, StartError
from reward_server.check import Unreachable, check
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.credentials import ClientCredentials, ServerCredentials
from reward_server.decode import Tokenizer
from reward_server.flags import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    REWARDS_TEST,
    build_parser,
    joined,
)
from reward_server.handler import ABANDONED_S, WORKER_ABANDONED_S
from reward_server.listen import Listen
from reward_server.pool import Pool
from reward_server.router import WorkerRouter
from reward_server.score import score_file
from reward_server.server import RewardService, ScoringService

_REWARD_SERVICE = lifecycle.Service(
    name=reward_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name,
    add=lambda handler, server: reward_pb2_grpc.add_RewardServiceServicer_to_server(
        RewardService(handler), server
    ),
    abandoned_s=ABANDONED_S,
)
_SCORING_SERVICE = lifecycle.Service(
    name=scoring_pb2.DESCRIPTOR.services_by_name["ScoringService"].full_name,
    add=lambda handler, server: scoring_pb2_grpc.add_ScoringServiceServicer_to_server(
        ScoringService(handler), server
    ),
    abandoned_s=WORKER_ABANDONED_S,
)

# Smallest values of flags that are numbers.
_LEAST = {"slots": 1, "max_child_mb": 1, "max_queue_mb": 1, "drain_s": 0, "worker_slots": 1}


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
    sys.exit(pipes.run(lambda: _main(sys.argv[1:] if argv is None else argv)))


def _main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(joined(argv))
    if args.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        _check_numbers(args)
        return _COMMANDS[args.command](args)
    except Unreachable as error:
        print(error, file=sys.stderr)
        return EXIT_UNREACHABLE
    except (ConfigError, StartError) as error:
        print(f"reward-server {args.command}: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


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
    if args.command == "worker":
        given["outage_s"] = 0
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
    return score_file(
        args.file,
        rewards=RewardsConfig.load(args.rewards),
        pool=_pool_config(args),
        tokenizer_path=args.tokenizer,
        out=args.out,
        only_failed=args.only_failed,
    )


def _rewards(args: argparse.Namespace) -> int:
    log.configure(level="ERROR", as_json=False)
    shown = (
        rewards_cli.list_built_in() if args.name is None else rewards_cli.show_built_in(args.name)
    )
    print(shown)
    return EXIT_OK


def _rewards_test(args: argparse.Namespace) -> int:
    log.configure(level="ERROR", as_json=False)
    rewards = None if args.rewards is None else RewardsConfig.load(args.rewards)
    if args.fn is None:
        if args.column or args.completion is not None:
            args.usage_error("--column and --completion must come with FN, whose example they are")
        if rewards is not None:
            return try_file.try_file(rewards, timeout_s=args.timeout_s, pool=_pool_config(args))
        args.usage_error("FN is required, or --rewards, all of whose functions are then tested")
    good = try_out.try_out(
        try_out.entry_of(args.fn, rewards, timeout_s=args.timeout_s),
        columns=try_out.columns_of(args.column),
        completion=args.completion,
        pool=_pool_config(args),
    )
    return EXIT_OK if good else EXIT_FAILED


_COMMANDS = {
    "serve": _run,
    "worker": _run,
    "check": _check,
    "score": _score,
    "rewards": _rewards,
    REWARDS_TEST: _rewards_test,
}
