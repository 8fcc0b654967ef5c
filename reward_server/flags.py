# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of `reward-server` and its commands, in groups. What commands do is in `cli`."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path

from reward_server.config import PoolConfig
from reward_server.handler import QUEUE_BYTES, version

# What a trainer on a laptop is pointed at.
LISTEN = "unix:/tmp/reward.sock"
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIG, EXIT_UNREACHABLE = 0, 1, 2, 3, 4
# As a shell says them: 128 and the number of a signal.
EXIT_INTERRUPTED, EXIT_CLOSED_PIPE, EXIT_TERMINATED = 130, 141, 143

# Two words, so that it has flags of its own beside those of `rewards NAME`.
REWARDS_TEST = "rewards test"

_EXIT_CODES = {
    EXIT_OK: "ok",
    EXIT_FAILED: "rows without a reward, or a function that failed",
    EXIT_USAGE: "wrong flags",
    EXIT_CONFIG: "a file or setting can't be used",
    EXIT_UNREACHABLE: "nothing answers",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_TERMINATED: "terminated",
    EXIT_CLOSED_PIPE: "nobody reads the output",
}
_SLOTS = "processes that run reward functions (default: one per core)"


def build_parser() -> argparse.ArgumentParser:
    """Makes the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="reward-server",
        description="Scores completions for training processes: serves reward functions over gRPC,"
        " and tries them on files.",
        epilog=f"`reward-server COMMAND --help` shows the flags of a command. {_codes()}",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"shardward {version()}", help="show the version"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    make = _Commands(commands)
    _add_serve(make)
    _add_worker(make)
    _add_check(make)
    _add_score(make)
    _add_rewards(make)
    return parser


def joined(argv: Sequence[str]) -> list[str]:
    """Makes one word of a command that has two.

    Example:
        >>> joined(["rewards", "test", "math"])
        ['rewards test', 'math']
    """
    words = REWARDS_TEST.split()
    return [REWARDS_TEST, *argv[2:]] if list(argv[:2]) == words else list(argv)


@dataclasses.dataclass(frozen=True, slots=True)
class _Commands:
    """Adds commands; what all of them have in common is here."""

    parsers: argparse._SubParsersAction[argparse.ArgumentParser]

    def add(
        self, name: str, text: str, description: str, codes: Sequence[int], example: str
    ) -> argparse.ArgumentParser:
        return self.parsers.add_parser(
            name,
            help=text,
            description=description,
            epilog=f"Example: {example}\n\n{textwrap.fill(_codes(codes), 79)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )


def _codes(codes: Sequence[int] = tuple(_EXIT_CODES)) -> str:
    return f"Exit codes: {', '.join(f'{code} {_EXIT_CODES[code]}' for code in codes)}."


def _add_serve(commands: _Commands) -> None:
    serve = commands.add(
        "serve",
        "answer training processes",
        "Answers training processes: decodes their completions and has them scored, by\n"
        "child processes of its own or by workers. Runs until SIGTERM or Ctrl-C.",
        (EXIT_OK, EXIT_USAGE, EXIT_CONFIG, EXIT_INTERRUPTED),
        "reward-server serve --tokenizer DIR --rewards rewards.toml",
    )
    _add_files(serve, rewards="TOML file of reward functions; needed without --workers")
    group = serve.add_argument_group("workers (default: run the functions here)")
    group.add_argument(
        "--workers",
        metavar="ADDRS",
        help="HOST:PORT,..., dns:///NAME:PORT, or file:PATH with an address in each line",
    )
    group.add_argument(
        "--worker-slots",
        type=int,
        metavar="N",
        help="slots behind each address, for load balancers (default: what a worker says)",
    )
    _add_caller(group, "--workers-", "the workers")
    _add_service(serve, listen=LISTEN)


def _add_worker(commands: _Commands) -> None:
    worker = commands.add(
        "worker",
        "run reward functions for reward servers",
        "Runs reward functions for reward servers, in child processes that can be killed,\n"
        "until SIGTERM or Ctrl-C.",
        (EXIT_OK, EXIT_USAGE, EXIT_CONFIG, EXIT_INTERRUPTED),
        "reward-server worker --listen 127.0.0.1:7000 --tokenizer DIR --rewards rewards.toml",
    )
    _add_files(worker, rewards="TOML file of reward functions")
    _add_service(worker, listen=None)


def _add_files(parser: argparse.ArgumentParser, *, rewards: str) -> None:
    group = parser.add_argument_group("what to run")
    group.add_argument(
        "--tokenizer", required=True, metavar="PATH", help="tokenizer.json or its folder"
    )
    group.add_argument("--rewards", metavar="FILE", help=rewards)
    group.add_argument("--slots", type=int, metavar="N", help=_SLOTS)
    group.add_argument(
        "--max-child-mb",
        type=int,
        default=PoolConfig().max_child_rss_bytes >> 20,
        metavar="MIB",
        help="MiB of memory above which such a process is replaced (default: %(default)s)",
    )


def _add_service(parser: argparse.ArgumentParser, *, listen: str | None) -> None:
    """Flags of a process that serves."""
    group = parser.add_argument_group("where it listens")
    group.add_argument(
        "--listen",
        default=listen,
        required=listen is None,
        metavar="ADDR",
        help="unix:PATH or HOST:PORT; port 0 takes a free one, which the log names"
        + (" (default: %(default)s)" if listen else ""),
    )
    group.add_argument(
        "--insecure-bind", action="store_true", help="listen beyond this machine without TLS"
    )
    group.add_argument(
        "--health-listen", metavar="HOST:PORT", help="port for health checks only, without TLS"
    )
    group.add_argument(
        "--metrics-listen", metavar="HOST:PORT", help="port for Prometheus, without TLS"
    )
    group = parser.add_argument_group("who may call")
    group.add_argument(
        "--tls-cert", metavar="FILE", help="certificate to show to callers, PEM; turns TLS on"
    )
    group.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert, PEM")
    group.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="let in only callers with a certificate that this CA signed, PEM",
    )
    group.add_argument(
        "--token-file", metavar="FILE", help="let in only callers that show the token in this file"
    )
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-queue-mb",
        type=int,
        default=QUEUE_BYTES >> 20,
        metavar="MIB",
        help="MiB of calls under way, above which new ones are refused and sent again later"
        " (default: %(default)s)",
    )
    group.add_argument(
        "--drain-s",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds that calls under way have to end after SIGTERM (default: %(default)g)",
    )
    group = parser.add_argument_group("log, on standard error")
    group.add_argument("--log-json", action="store_true", help="a JSON object for each line")
    group.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="the least that is logged; DEBUG has a line for each call (default: %(default)s)",
    )


def _add_caller(group: argparse._ActionsContainer, prefix: str, peer: str) -> None:
    """Flags of a caller, as `client_ca`, `client_cert`, `client_key` and `client_token`."""
    for name, text in (
        ("ca", f"CA that signed the certificate of {peer}, PEM; turns TLS on"),
        ("cert", f"certificate to show to {peer}, PEM"),
        ("key", f"private key of {prefix}tls-cert, PEM"),
    ):
        group.add_argument(f"{prefix}tls-{name}", dest=f"client_{name}", metavar="FILE", help=text)
    group.add_argument(
        f"{prefix}token-file",
        dest="client_token",
        metavar="FILE",
        help=f"file of the token to show to {peer}",
    )


def _add_check(commands: _Commands) -> None:
    check = commands.add(
        "check",
        "say what a server or worker is, or what is wrong",
        "Asks a reward server or worker for its functions, slots and tokenizer; where\n"
        "nothing answers, says what to do.",
        (EXIT_OK, EXIT_USAGE, EXIT_CONFIG, EXIT_UNREACHABLE),
        "reward-server check unix:/tmp/reward.sock",
    )
    check.add_argument("address", metavar="ADDR", help="unix:PATH or HOST:PORT")
    check.add_argument(
        "--timeout-s",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds to wait for an answer (default: %(default)g)",
    )
    _add_caller(check.add_argument_group("credentials"), "--", "ADDR")


def _add_score(commands: _Commands) -> None:
    score = commands.add(
        "score",
        "score the rows of a JSON-lines file",
        "Scores the rows of a JSON-lines file: prompt, completion and columns in each line.\n"
        "Ctrl-C or SIGTERM writes what there is; --only-failed scores the others later.",
        (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_TERMINATED),
        "reward-server score rollouts.jsonl --rewards rewards.toml --out scored.jsonl",
    )
    score.add_argument("file", metavar="FILE", type=Path, help="a row in each line")
    score.add_argument(
        "--rewards", required=True, metavar="FILE", help="TOML file of reward functions"
    )
    score.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="tokenizer.json or its folder, for rows with completion_ids",
    )
    score.add_argument("--out", type=Path, metavar="FILE", help="scored rows; may be FILE itself")
    score.add_argument(
        "--only-failed", action="store_true", help="leave rows that have a reward as they are"
    )
    score.add_argument("--slots", type=int, metavar="N", help=_SLOTS)


def _add_rewards(commands: _Commands) -> None:
    rewards = commands.add(
        "rewards",
        "list the built-in functions, or show one",
        "Lists the built-in reward functions with their parameters; shows one with examples.",
        (EXIT_OK, EXIT_USAGE, EXIT_CONFIG),
        "reward-server rewards gsm8k",
    )
    rewards.add_argument("name", metavar="NAME", nargs="?", help="built-in function to show")
    test = commands.add(
        REWARDS_TEST,
        "try reward functions on hostile completions",
        "Tries a reward function on its example and on completions of a bad policy, or all\n"
        "functions of a rewards file.",
        (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIG, EXIT_INTERRUPTED),
        "reward-server rewards test my_rewards.py:short --column answer=7",
    )
    test.set_defaults(usage_error=test.error)
    test.add_argument(
        "fn",
        metavar="FN",
        nargs="?",
        help="file.py:function, package.module:function or a built-in",
    )
    test.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="column of the example; NAME:=JSON for other values than text; may be repeated",
    )
    test.add_argument("--completion", metavar="TEXT", help="completion of the example")
    test.add_argument(
        "--rewards", metavar="FILE", help="TOML file; FN is then a name in it, all without FN"
    )
    test.add_argument(
        "--timeout-s", type=float, metavar="S", help="seconds for one input (default: 10)"
    )
    test.add_argument("--slots", type=int, metavar="N", help=_SLOTS)
