# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows a second of each built-in function on one slot, decoding counted. `make bench-sizing`.

Prints the table of docs/deploy.md: divide the rows of a step by it, and by the seconds that the
rewards may take, to get slots.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench import rows
from reward_server.batch import Batch
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.reward_fns import BUILT_IN

ROWS = 1024
TOKENS = 500
# They wait for a service or a model: their speed is that one's.
NOT_MEASURED = ("llm_judge", "reward_model")


def batch_of(example: dict[str, Any], body: list[int], tokenizer: Tokenizer, n: int) -> Batch:
    """Rows that end as the function's example, after a worked solution of 500 tokens."""
    tail = tokenizer.encode("\n" + example["completion"], add_special_tokens=False).ids
    ids = np.array([*body[: TOKENS - len(tail)], *tail], np.int32)
    return Batch(
        completion_ids=np.tile(ids, n),
        completion_lengths=np.full(n, len(ids), np.int64),
        prompts=[example["prompt"]] * n,
        columns={name: [value] * n for name, value in example.get("columns", {}).items()},
        row_ids=list(range(n)),
    )


async def rows_a_second(name: str, batch: Batch) -> float:
    """Scores the batch three times on one slot; the best counts."""
    example = importlib.import_module(BUILT_IN[name].partition(":")[0]).EXAMPLE
    functions = (RewardFnConfig(fn=name, params=example.get("params", {})),)
    pool = Pool(RewardsConfig(functions=functions), rows.tokenizer_folder(), PoolConfig(slots=1))
    await pool.start()
    try:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            scores = await pool.score(batch, timeout_s=300)
            times.append(time.perf_counter() - start)
            if scores.errors:
                raise RuntimeError(f"{name}: {scores.errors[0].message}")
        return batch.rows / min(times)
    finally:
        await pool.close()


def main() -> None:
    """Measures all and prints a row of the table for each."""
    tokenizer = Tokenizer.from_file(str(rows.tokenizer_folder() / "tokenizer.json"))
    data = rows.make(1, 1, TOKENS, TOKENS)
    body = data.ids[0].tolist()
    print("| reward function | rows a second on one core |\n| --- | --- |")
    for name in sys.argv[1:] or [name for name in BUILT_IN if name not in NOT_MEASURED]:
        example = importlib.import_module(BUILT_IN[name].partition(":")[0]).EXAMPLE
        n = 128 if name == "code_python" else ROWS
        speed = asyncio.run(rows_a_second(name, batch_of(example, body, tokenizer, n)))
        print(f"| `{name}` | {float(f'{speed:.2g}'):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
