# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures rewards side by side: the floor, Shardward, Tunix in process. `make bench`.

The floor is the least the machine needs: Rust `decode_batch` and the same function in one
spawned process per core, rows split evenly beforehand, no service. Shardward is the full path
from a sharded token array to a sharded advantage. Shares are rows a second over the floor's, of
the same run; runs alternate and the best of each counts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench import reward_fns, rows
from reward_server.batch import Batch
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.reward_fns.code_python import code_python
from reward_server.sandbox.sandbox import Sandbox

ROOT = Path(__file__).parents[1]
CORES = os.cpu_count() or 1


def score_part(
    names: Sequence[str], prompts: list[str], answers: list[str], ids: list[list[int]]
) -> float:
    """Decodes and scores one core's rows; returns seconds. Runs in a process of the floor."""
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = _CACHE.setdefault(
        "tokenizer", Tokenizer.from_file(str(rows.tokenizer_folder() / "tokenizer.json"))
    )
    start = time.perf_counter()
    texts = tokenizer.decode_batch(ids)
    for name in names:
        getattr(reward_fns, name)(prompts=prompts, completions=texts, answer=answers)
    return time.perf_counter() - start


_CACHE: dict[str, Any] = {}


class Floor:
    """One spawned process per core with its rows already in it."""

    def __init__(self) -> None:
        """Starts the processes."""
        self._pool = multiprocessing.get_context("spawn").Pool(CORES)

    def run(self, names: Sequence[str], data: rows.Rows) -> float:
        """Seconds of the slowest core, without the transfer of the rows."""
        cut = [[int(i) for i in row if i != rows.END] for row in data.ids]
        parts = [slice(c, None, CORES) for c in range(CORES)]
        jobs = [(names, data.prompts[p], data.answers[p], cut[p]) for p in parts]
        return max(self._pool.starmap(score_part, jobs, chunksize=1))

    def close(self) -> None:
        """Ends the processes."""
        self._pool.terminate()
        self._pool.join()


@contextmanager
def reward_server(
    names: Sequence[str], folder: Path, timeout_s: float = 10.0
) -> Iterator[tuple[str, int]]:
    """A reward server with one slot per core; yields its endpoint and process id."""
    title = "-".join(names)
    toml = folder / f"{title}.toml"
    file = ROOT / "bench" / "reward_fns.py"
    probe = 'probe = {completion = "\\\\boxed{1}", columns = {answer = "1"}}'
    entries = [
        f'[[reward]]\nfn = "{file}:{name}"\ntimeout_s = {timeout_s}\n{probe}\n' for name in names
    ]
    toml.write_text("".join(entries))
    endpoint = f"unix:{folder / title}.sock"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "reward_server", "serve", "--listen", endpoint),
            *("--tokenizer", str(rows.tokenizer_folder()), "--rewards", str(toml)),
            *("--slots", str(CORES), "--log-level", "WARNING"),
        ],
        cwd=ROOT,
    )
    try:
        yield endpoint, process.pid
    finally:
        process.terminate()
        process.wait(30)


class Shardward:
    """The trainer's side: a sharded token array in, sharded advantages out."""

    def __init__(self, endpoint: str, data: rows.Rows) -> None:
        """Places the tokens on the devices and connects."""
        import jax
        from jax.sharding import Mesh

        from trainer.arrays import RowArrays
        from trainer.client import RewardClient

        self._data = data
        mesh = Mesh(np.array(jax.devices()).reshape(-1, 1), ("fsdp", "tp"))
        self._arrays = RowArrays(mesh, ("fsdp",))
        self._tokens = self._arrays.from_local_rows(data.ids, len(data.ids))
        self._client = RewardClient(endpoint, connect_timeout_s=180)
        self._client.connect()

    def run(self) -> tuple[float, int]:
        """Seconds of one batch, and rows that failed."""
        import jax

        from trainer import advantage, codec

        n = len(self._data.ids)
        numbers = np.arange(n)
        start = time.perf_counter()
        rewards = self._client.score(
            codec.LocalRollouts(
                row_ids=numbers,
                group_ids=numbers // 8,
                prompts=self._data.prompts,
                completion_ids=self._arrays.owned_rows(self._tokens),
                end_token_ids=[rows.END],
                pad_token_id=rows.END,
                columns={"answer": self._data.answers},
            )
        )
        if rewards is None:
            raise RuntimeError("no rows were sent")
        packed = self._arrays.from_owned_rows(advantage.pack(rewards), n)
        step = advantage.reward_step(self._arrays.row_sharding, self._arrays.replicated, 8)
        jax.block_until_ready(step(packed))
        return time.perf_counter() - start, int((~rewards.valid).sum())

    def close(self) -> None:
        """Closes the channel."""
        self._client.close()


def tunix_in_process(names: Sequence[str], data: rows.Rows) -> float:
    """Seconds of Tunix's own way: its sampler's row by row decode, then its reward manager."""
    from tokenizers import Tokenizer
    from tunix.rl import reward_manager
    from tunix.rl.grpo.grpo_learner import GRPOConfig

    tokenizer = _CACHE.setdefault(
        "tokenizer", Tokenizer.from_file(str(rows.tokenizer_folder() / "tokenizer.json"))
    )
    functions = [getattr(reward_fns, name) for name in names]
    manager = reward_manager.SequenceRewardManager(functions, GRPOConfig())
    cut = [[int(i) for i in row if i != rows.END] for row in data.ids]
    start = time.perf_counter()
    texts = [tokenizer.decode(ids) for ids in cut]
    manager(prompts=data.prompts, completions=texts, answer=data.answers)
    return time.perf_counter() - start


def best(repeats: int, *runs: Callable[[], float]) -> list[float]:
    """Best seconds of each run; runs alternate so that noise falls on all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, seconds in zip(runs, times, strict=True):
            seconds.append(run())
    return [min(seconds) for seconds in times]


def compare(names: Sequence[str], data: rows.Rows, folder: Path, repeats: int) -> dict[str, float]:
    """Rows a second of the floor, Shardward and Tunix for these functions."""
    floor = Floor()
    with reward_server(names, folder) as (endpoint, _):
        ours = Shardward(endpoint, data)
        floor.run(names, data)
        ours.run()
        low, our, tunix = best(
            repeats,
            lambda: floor.run(names, data),
            lambda: ours.run()[0],
            lambda: tunix_in_process(names, data),
        )
        ours.close()
    floor.close()
    n = len(data.ids)
    return {
        "rows": n,
        "floor_rows_per_s": n / low,
        "shardward_rows_per_s": n / our,
        "tunix_rows_per_s": n / tunix,
        "shardward_share": low / our,
        "tunix_share": low / tunix,
    }


def judge(data: rows.Rows, folder: Path) -> dict[str, float]:
    """Rows a second for a function that waits 50 ms."""
    with reward_server(["judge"], folder) as (endpoint, _):
        ours = Shardward(endpoint, data)
        ours.run()
        (seconds,) = best(5, lambda: ours.run()[0])
        ours.close()
    return {"rows": len(data.ids), "shardward_rows_per_s": len(data.ids) / seconds}


def stuck(data: rows.Rows, folder: Path) -> dict[str, float]:
    """Seconds of a batch with one row stuck in C code, limit 5 s, and rows that failed."""
    answers = list(data.answers)
    answers[len(answers) // 2] = "hang"
    with reward_server(["stuck"], folder, timeout_s=5.0) as (endpoint, _):
        ours = Shardward(endpoint, dataclasses.replace(data, answers=answers))
        seconds, failed = ours.run()
        ours.close()
    return {"rows": len(data.ids), "seconds": seconds, "rows_failed": failed}


def memory(folder: Path) -> dict[str, float]:
    """Resident memory of the server process after small and large calls."""
    import psutil

    out = {}
    with reward_server(["regex"], folder) as (endpoint, pid):
        for prompts in (32, 2048):
            ours = Shardward(endpoint, rows.make(prompts, 8, 150, 420))
            ours.run()
            ours.close()
            out[f"rss_mb_after_{prompts * 8}_rows"] = psutil.Process(pid).memory_info().rss / 2**20
    return out


def pool_cost(n: int) -> dict[str, float]:
    """Microseconds that the pool adds to a row, with next to nothing to do in it."""
    folder = rows.tokenizer_folder()
    function = RewardFnConfig(fn=f"{ROOT / 'bench' / 'reward_fns.py'}:length")
    batch = Batch(
        completion_ids=np.full(n, 100, np.int32),
        completion_lengths=np.ones(n, np.int64),
        prompts=["x" * 1000] * n,
        columns={},
        row_ids=list(range(n)),
    )

    async def measure() -> float:
        pool = Pool(RewardsConfig(functions=(function,)), folder, PoolConfig(slots=CORES))
        await pool.start()
        times = []
        for _ in range(10):
            start = time.perf_counter()
            await pool.score(batch, timeout_s=60)
            times.append(time.perf_counter() - start)
        await pool.close()
        return min(times)

    return {"rows": n, "microseconds_a_row": asyncio.run(measure()) / n * 1e6}


def sandboxed(runs: int) -> dict[str, float]:
    """Runs a second in the sandbox, on one core, beside starts of a bare interpreter."""
    square = "def square(x):\n    return x * x\n"
    direct = [{"type": "assert", "code": "assert square(2) == 4"}]
    referee = [{"type": "assert", "code": "assert abs(square(2) - 4) < 1e-6"}]

    def clock(run: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            run()
        return time.perf_counter() - start

    bare = [sys.executable, "-I", "-c", "pass"]
    with Sandbox() as sandbox:
        program = lambda: sandbox.program(["pass"], stdin=b"", timeout_s=60)  # noqa: E731
        times = best(
            3,
            lambda: clock(lambda: subprocess.run(bare, check=True)),
            lambda: clock(program),
            lambda: clock(lambda: code_python([""], [square], [direct])),
            lambda: clock(lambda: code_python([""], [square], [referee])),
        )
    names = ("bare_python", "sandboxed_program", "one_assert", "one_assert_with_referee")
    rates = {f"{name}_per_s": runs / t for name, t in zip(names, times, strict=True)}
    return {**rates, "sandboxed_share_of_bare": times[0] / times[1]}


def main() -> None:
    """Runs everything, prints the table and writes bench/results.json."""
    data = rows.make(256, 8, 150, 420)
    subset = rows.Rows(data.prompts[:512], data.answers[:512], data.ids[:512])
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="shardward-bench-") as name:
        folder = Path(name)
        results["regex, 150-420 tokens"] = compare(["regex"], data, folder, 9)
        results["math, 150-420 tokens"] = compare(["math"], data, folder, 5)
        results["math-verify, 150-420 tokens"] = compare(["math_verify"], data, folder, 5)
        results["math-verify, regex, length, 150-420 tokens"] = compare(
            ["math_verify", "regex", "length"], data, folder, 3
        )
        results["regex, 4096 tokens"] = compare(["regex"], rows.make(32, 8, 4090, 4096), folder, 3)
        results["waits 50 ms, async"] = judge(subset, folder)
        results["one row stuck in C, limit 5 s"] = stuck(subset, folder)
        results["server memory"] = memory(folder)
    results["math, 150-420 tokens"]["over_math_verify_in_one_process"] = (
        results["math, 150-420 tokens"]["shardward_rows_per_s"]
        / results["math-verify, 150-420 tokens"]["tunix_rows_per_s"]
    )
    results["pool, trivial function"] = pool_cost(2048)
    results["sandboxed runs, one core"] = sandboxed(200)
    for title, values in results.items():
        print(f"\n{title}")
        for key, value in values.items():
            print(f"  {key:28s} {value:12,.2f}")
    out = ROOT / "bench" / "results.json"
    out.write_text(json.dumps({"cores": CORES, "results": results}, indent=2) + "\n")
    print(f"\nwrote {out.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
