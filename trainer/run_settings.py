# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What must be equal on all processes of a run, by name: sizes, settings, mesh and versions.

Another seed on one process would go unnoticed, another temperature or size is another program,
in which all processes hang.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from trainer.errors import ProcessesDisagree

_DISTRIBUTIONS = ("shardward", "jax", "jaxlib", "flax", "google-tunix", "numpy", "optax")
# They name folders and what is shown, which may be each process's own.
_OWN = frozenset({"checkpoint_root_directory", "pbar_description"})


def run_settings(cluster: Any, algo_config: Any) -> dict[str, str]:
    """Collects the settings of a run.

    Args:
        cluster: Tunix's cluster.
        algo_config: settings of the algorithm.

    Returns:
        Each setting in words, by its name.
    """
    config = cluster.cluster_config
    rollouts = config.rollout_config
    by_mode = rollouts if isinstance(rollouts, Mapping) else {"": rollouts}
    settings = {**_fields(algo_config), **_fields(config.training_config)}
    for mode, rollout in by_mode.items():
        where = f" of the rollout config {str(mode).lower()}".rstrip()
        settings |= {f"{name}{where}": text for name, text in _fields(rollout).items()}
    for role, mesh in config.role_to_mesh.items():
        ids = [device.id for device in mesh.devices.flat]
        settings[f"the mesh of {role}"] = f"{dict(mesh.shape)} of devices {ids}"
    return settings | versions()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a program on the devices is made by."""
    found = {"the version of python": ".".join(map(str, sys.version_info[:3]))}
    for name in _DISTRIBUTIONS:
        try:
            found[f"the version of {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[f"the version of {name}"] = "not installed"
    return found


def check_settings(values: list[dict[str, Any]]) -> None:
    """Checks that all processes have the same settings.

    Raises:
        ProcessesDisagree: names the setting, with both values.
    """
    for process, settings in enumerate(values):
        for name in sorted(values[0] | settings):
            first, other = values[0].get(name), settings.get(name)
            if first != other:
                raise ProcessesDisagree(
                    f"{name} must be equal on all processes: process 0 has {first}, process"
                    f" {process} has {other}.",
                    reason="PROCESSES_DISAGREE",
                )


def _fields(config: Any) -> dict[str, str]:
    """The fields of a config that have plain values; others have no text that can be compared."""
    names = [field.name for field in dataclasses.fields(config)]
    named = {name: _plain(getattr(config, name)) for name in names if name not in _OWN}
    return {f"`{name}`": text for name, text in named.items() if text is not None}


def _plain(value: Any) -> str | None:
    """The text of a plain value, or None."""
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return str(np.asarray(value).tolist())
    if isinstance(value, Mapping):
        items = [(str(key), _plain(item)) for key, item in value.items()]
        return str({key: text for key, text in sorted(items) if text is not None})
    if isinstance(value, list | tuple):
        return str([text for item in value if (text := _plain(item)) is not None])
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else None
