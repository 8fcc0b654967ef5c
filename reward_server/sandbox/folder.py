# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The folder that runs may write in: how full it is, and emptying it.

Names in it are chosen by hostile code: links are never followed, depth costs no recursion.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_MAX_BYTES = 64 * 2**20
_MAX_ENTRIES = 2000


def is_too_full(path: Path) -> bool:
    """Says whether a folder holds more than a run may leave, or hides it; it may be changing."""
    size = entries = 0
    try:
        for _, names, files, fd in os.fwalk(path, follow_symlinks=False, onerror=_refuse_hidden):
            entries += len(names) + len(files)
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    size += 512 * os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks
            if size > _MAX_BYTES or entries > _MAX_ENTRIES:
                return True
    except (PermissionError, RecursionError):
        return True
    except OSError:
        return False  # a folder went away under our hands; the next look may see it all
    return False


def _refuse_hidden(error: OSError) -> None:
    if isinstance(error, PermissionError):
        raise error


def empty(path: Path) -> None:
    """Removes all that is in a folder, which nobody uses any more."""
    number = 0
    while entries := list(path.iterdir()):
        for entry in entries:
            if not stat.S_ISDIR(entry.lstat().st_mode):
                entry.unlink()
                continue
            entry.chmod(0o700)
            # Folders inside come up to the top, so no path is ever long.
            for inner in list(entry.iterdir()):
                if stat.S_ISDIR(inner.lstat().st_mode):
                    number += 1
                    inner.chmod(0o700)
                    inner.rename(path / f".{os.getpid()}-{number}")
                else:
                    inner.unlink()
            entry.rmdir()


def remove(path: Path) -> None:
    """Removes a folder with all that is in it."""
    empty(path)
    path.rmdir()
