# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`grpo-train` with a client that writes down which rows got which outcome.

With CHAOS_FAILS_AT the progress of the last process fails after that step, once.
"""

from __future__ import annotations

import collections
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

FAILURE = "made to fail between two exchanges"
_AT = os.environ.get("CHAOS_FAILS_AT")
FAILS_AT = int(_AT) if _AT else None


def main() -> int:
    """Trains; every result goes to CHAOS_ROWS as a line of JSON."""
    import jax

    from tests.multiprocess.train_worker import cache_what_is_compiled
    from trainer import cli, client
    from trainer.progress import Progress

    cache_what_is_compiled()

    on_step = Progress.on_step

    def fails(self: Progress, report: Any) -> None:
        if report.step == FAILS_AT and jax.process_index() == jax.process_count() - 1:
            raise OSError(FAILURE)
        on_step(self, report)

    if FAILS_AT is not None:
        Progress.on_step = fails

    class Handle(client.RewardHandle):
        def result(self, timeout_s: float | None = None) -> Any:
            rewards = super().result(timeout_s)
            if rewards is not None:
                reasons = collections.Counter(failure.status for failure in rewards.failures)
                rows = [row for call in self._calls for row in call.request.rollouts.row_ids]
                line = {"rows": rows, "valid": int(rewards.valid.sum()), "reasons": reasons}
                line["highest"] = float(np.nanmax(rewards.totals, initial=0.0))
                log.write(json.dumps(line) + "\n")
            return rewards

    client.RewardHandle = Handle
    with Path(os.environ["CHAOS_ROWS"]).open("a", encoding="utf-8", buffering=1) as log:
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
