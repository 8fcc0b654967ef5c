# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""One JAX process of the multi-process tests: trains a tiny model by scenarios, writes what it saw.

Run by `conftest.launch` with a JSON file that lists scenarios; all processes run all, in order,
so that imports and compilation are paid once.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path


def cache_what_is_compiled() -> None:
    """Lets this process write JAX's compilation cache.

    Only process 0 does, for others read what it wrote. On CPU each process has keys of its own,
    and would compile the same programs again in every scenario.
    """
    from jax._src import compilation_cache, compiler

    def write(cache_key, compile_s, module_name, backend, executable, host_callbacks):
        if not host_callbacks:
            compilation_cache.put_executable_and_time(
                cache_key, module_name, executable, backend, int(compile_s)
            )

    compiler._cache_write = write


def main() -> None:
    """Runs the scenarios of the plan on this process."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    process, count = int(sys.argv[2]), int(sys.argv[3])
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={plan['devices']}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    logging.basicConfig(level=logging.WARNING)
    import jax

    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(plan["coordinator"], count, process)
        cache_what_is_compiled()
    from tests.multiprocess import scenarios

    def find(name: str):
        module, _, function = name.rpartition(":")
        home = importlib.import_module(f"tests.multiprocess.{module}") if module else scenarios
        return getattr(home, function)

    results = []
    for scenario in plan["scenarios"]:
        run = find(scenario["run"])
        scenario["servers"] = plan["servers"]
        begun = time.monotonic()
        try:
            result = run(process, plan["endpoints"][process], scenario)
        except Exception as error:  # noqa: BLE001 - reported to the test
            result = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        # Also of a run that failed: the servers have counted them.
        result["wall_s"] = time.monotonic() - begun
        result["row_ids"] = list(scenarios.SENT)
        scenarios.SENT.clear()
        results.append(result)
        Path(plan["out"], f"result-{process}.json").write_text(json.dumps(results))
        if "do not answer" in result.get("error", ""):
            os._exit(1)  # JAX's exit handler would wait for the process that is gone


if __name__ == "__main__":
    main()
