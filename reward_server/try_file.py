# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`reward-server rewards test --rewards FILE`: tries all functions of a file, for its CI."""

from __future__ import annotations

from reward_server.batch import StartError
from reward_server.config import ConfigError, PoolConfig, RewardsConfig
from reward_server.flags import EXIT_CONFIG, EXIT_FAILED, EXIT_OK
from reward_server.try_out import entry_of, outcome_of, run_trial


def try_file(rewards: RewardsConfig, *, timeout_s: float | None, pool: PoolConfig) -> int:
    """Runs each function of a rewards file in a pool of its own, and prints what failed.

    Args:
        rewards: the functions.
        timeout_s: limit for a row, or None for those of the file.
        pool: limits.

    Returns:
        The exit code: 0 if all inputs were scored, 1 if one failed, 3 if a function can't be
        loaded, whatever the others did.
    """
    codes = []
    names = [function.name for function in rewards.functions]
    width = max(map(len, names))
    for name in names:
        code, verdict, details = _try(name, rewards, timeout_s, pool)
        codes.append(code)
        lines = [f"{name:{width}}  {verdict}", *(f"  {detail}" for detail in details)]
        print("\n".join(lines), flush=True)  # noqa: T201
    parts = [f"functions: {codes.count(EXIT_OK)} ok"]
    for code, what in ((EXIT_FAILED, "failed"), (EXIT_CONFIG, "can't be loaded")):
        parts += [f"{count} {what}"] if (count := codes.count(code)) else []
    print(f"\n{', '.join(parts)}")  # noqa: T201
    return max(codes)


def _try(
    name: str, rewards: RewardsConfig, timeout_s: float | None, pool: PoolConfig
) -> tuple[int, str, list[str]]:
    """Returns the exit code, a verdict and what there is to say about it."""
    try:
        trial = run_trial(entry_of(name, rewards, timeout_s=timeout_s), pool=pool)
    except (ConfigError, StartError) as error:
        return EXIT_CONFIG, "can't be loaded", [str(error)]
    width = max(map(len, trial.inputs))
    failed = [f"{name:{width}}  {outcome_of(rows)}" for name, rows in trial.failed.items()]
    code = EXIT_FAILED if failed else EXIT_OK
    return code, trial.verdict, [*failed, *trial.hints]
