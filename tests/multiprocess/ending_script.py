# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A script without a handler of its own, in which one of two processes raises.

Arguments: process, address of process 0, where, and the process that raises.
"""

from __future__ import annotations

import os
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

from trainer.agreement import Agreement

process, coordinator, where, who = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(coordinator, 2, process)
agreement = Agreement(timeout_s=300)
multihost_utils.process_allgather(np.ones(3))
agreement.all_ok("start", None)
if where == "before" and process == who:
    raise ValueError("bad thing")
if where == "lost" and process == who:
    os._exit(7)
with agreement.guarded(lambda: "step 1"):
    if process == who:
        raise ValueError("bad thing")
    if where in ("collective", "lost"):
        multihost_utils.process_allgather(np.ones(3))
    agreement.all_ok("the next exchange", None)
