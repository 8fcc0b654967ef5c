# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Hashes of reward functions: equal where the same rows get the same rewards.

Equal after a restart, on every machine and Python: paths, versions and time limits are no part of
them. What a source file imports is not seen, nor is a file that a function reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward_server.batch import RewardFnInfo
    from reward_server.config import RewardFnConfig

_CHARACTERS = 16
# What has a place of its own, or decides no reward.
_ELSEWHERE = ("name", "fn", "weight", "timeout_s", "probe", "params", "sources")
_BUILT_IN = ("reward_fns", "sandbox")


def of_functions(reward_fns: Sequence[RewardFnInfo]) -> str:
    """Hashes what decides the rewards of functions, in their order."""
    parts = [
        [fn.name, float(fn.weight), sorted(fn.settings.items()), fn.code_digest]
        for fn in reward_fns
    ]
    return _hash(json.dumps(parts).encode())


def settings(entry: RewardFnConfig, route_column: str) -> dict[str, str]:
    """What decides the rewards of a function beside its code and weight, by name.

    Those with their default are left out, so that a new kind of setting changes no hash. Hashes
    stand for what may be long or a secret.
    """
    found = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.name in _ELSEWHERE or value == field.default:
            continue
        found[field.name] = value if isinstance(value, str) else json.dumps(value)
    if entry.sources:
        found["sources"] = _shown([route_column, *entry.sources])
    return found | {f"params.{name}": _shown(value) for name, value in entry.params.items()}


def of_code(call: Any, module: ModuleType) -> str:
    """Hashes the source files of a function: where it was found and where it was defined.

    For a built-in function those of all of them, which share code. "" without a source file.
    """
    if module.__name__.startswith("reward_server.reward_fns."):
        return _of_files(_built_in())
    code = getattr(inspect.unwrap(call), "__code__", None)
    files = {getattr(module, "__file__", None), getattr(code, "co_filename", None)}
    return _of_files(Path(file) for file in files if file and file.endswith(".py"))


def _built_in() -> Iterator[Path]:
    for folder in _BUILT_IN:
        yield from Path(__file__).with_name(folder).glob("*.py")


def _of_files(files: Iterator[Path]) -> str:
    # By content: the order must not follow from paths.
    found = sorted(hashlib.sha256(file.read_bytes()).digest() for file in files if file.is_file())
    return _hash(b"".join(found)) if found else ""


def _shown(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    plain = value is None or isinstance(value, bool | int | float)
    return text if plain else f"sha256:{_hash(text.encode())}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_CHARACTERS]
