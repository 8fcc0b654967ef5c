# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Loads code under test into a module of its own."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any


def load(name: str, sources: Sequence[str]) -> dict[str, Any]:
    """Runs the first source that compiles as the module `name`; returns its names.

    Raises:
        BaseException: whatever compiling the last source or running the code raises.
    """
    sys.argv = ["solution.py"]
    module = ModuleType(name)
    sys.modules[name] = module
    # Built-in names of its own: it may change them, and we need ours.
    module.__dict__["__builtins__"] = _own_builtins()
    exec(_compile(sources), module.__dict__)  # noqa: S102 - what the jail is for
    return module.__dict__


def _own_builtins() -> ModuleType:
    copy = ModuleType("builtins")
    copy.__dict__.update(vars(builtins))
    # An interpreter without site packages lacks them, and programs use them.
    copy.__dict__.update(exit=sys.exit, quit=sys.exit)
    sys.modules["builtins"] = copy
    return copy


def _compile(sources: Sequence[str]) -> CodeType:
    for source in sources[:-1]:
        try:
            return compile(source, "solution.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
    return compile(sources[-1], "solution.py", "exec", dont_inherit=True)
