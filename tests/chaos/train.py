# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`grpo-train` with a client that writes down which rows got which outcome."""

from __future__ import annotations

import collections
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    """Trains; every result goes to CHAOS_ROWS as a line of JSON."""
    from trainer import cli, client

    class Handle(client.RewardHandle):
        def result(self, timeout_s: float | None = None) -> Any:
            rewards = super().result(timeout_s)
            if rewards is not None:
                reasons = collections.Counter(failure.status for failure in rewards.failures)
                rows = [row for call in self._calls for row in call.request.rollouts.row_ids]
                line = {"rows": rows, "valid": int(rewards.valid.sum()), "reasons": reasons}
                log.write(json.dumps(line) + "\n")
            return rewards

    client.RewardHandle = Handle
    with Path(os.environ["CHAOS_ROWS"]).open("w", encoding="utf-8", buffering=1) as log:
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
