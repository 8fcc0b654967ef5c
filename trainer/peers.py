# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How the JAX processes of a job find each other, and the mesh over their devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh

from trainer import rendezvous
from trainer.run_config import AXES, ConfigError, in_cluster

if TYPE_CHECKING:
    from trainer.run_config import RunConfig

# JAX's own is 100 s; shorter than 10 s a busy machine looks dead.
_HEARTBEAT_S = (10, 100)


def connect(config: RunConfig) -> None:
    """Joins the job, if this process is part of one.

    Raises:
        ConfigError: the other processes did not come, or JAX cannot tell who they are.
    """
    if config.coordinator is None and not in_cluster(os.environ):
        return
    # Without it a CPU job has no collectives; on other platforms it changes nothing.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    bound = int(config.agreement_timeout)
    if config.coordinator and config.num_processes and config.process_id is not None:
        rendezvous.meet(
            config.coordinator,
            config.num_processes,
            config.process_id,
            timeout_s=config.agreement_timeout,
        )
    try:
        jax.distributed.initialize(
            config.coordinator,
            config.num_processes,
            config.process_id,
            initialization_timeout=max(1, bound),
            # Then JAX ends a process that is blocked in a collective with a dead one.
            heartbeat_timeout_seconds=max(_HEARTBEAT_S[0], min(_HEARTBEAT_S[1], bound)),
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"the other processes were not found: {error}."
            " Pass --coordinator, --num-processes and --process-id."
        ) from error


def make_mesh(sizes: dict[str, int] | None) -> Mesh:
    """Makes the mesh over all devices of the job, in the order of the processes.

    Args:
        sizes: size of each axis, or None to put all devices on the first.

    Raises:
        ConfigError: the sizes do not multiply to the number of devices.
    """
    devices = np.array(jax.devices())
    shape = [(sizes or {AXES[0]: devices.size}).get(axis, 1) for axis in AXES]
    if np.prod(shape) != devices.size:
        text = ",".join(f"{axis}={size}" for axis, size in zip(AXES, shape, strict=True))
        raise ConfigError(
            f"--mesh must use all {devices.size} devices, got {text}: {np.prod(shape)}."
        )
    return Mesh(devices.reshape(shape), AXES)
