# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of reward functions as modules, which every process that has this package can import.

The name of such a module holds the path of its file, so that functions of the file can be sent to
the processes of a pool (`multiprocessing`, `concurrent.futures`) however those are started; and a
file that is named like a package shadows nothing.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the file of a module below this package."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Makes the spec of a module, or None if it is not below this package."""
        if not fullname.startswith(f"{__name__}."):
            return None
        file = os.fsdecode(bytes.fromhex(fullname.rpartition("_")[2]))
        # Modules beside the file can be imported, after all others.
        folder = os.path.dirname(file)  # noqa: PTH120 - as text
        if folder not in sys.path:
            sys.path.append(folder)
        return importlib.util.spec_from_file_location(fullname, file)


def load(path: Path) -> ModuleType:
    """Imports a file, once in each process.

    Raises:
        LookupError: there is no such Python file.
        Exception: whatever the import raises.
    """
    if not path.is_file():
        raise LookupError(f"there is no file {path}")
    if path.suffix != ".py":
        raise LookupError(f"{path} is no Python file")
    path = path.absolute()
    stem = re.sub(r"\W", "_", path.stem)
    return importlib.import_module(f"{__name__}.{stem}_{os.fsencode(path).hex()}")


sys.meta_path.append(_Finder())
