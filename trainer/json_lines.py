# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines that a training writes beside its work. No JAX.

What goes wrong with such a file is logged and never raised: an error would be one process's own,
while the others go on to wait for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)


def strict(value: Any) -> Any:
    """Puts None where a number is not finite: JSON has no NaN, and many parsers refuse it.

    Example:
        >>> strict({"mean": float("nan"), "rows": [1, 2.5]})
        {'mean': None, 'rows': [1, 2.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strict(inner) for inner in value]
    return value


def write_json(file: Path, values: dict[str, Any]) -> None:
    """Writes a file of one JSON object; when that fails it is logged."""
    try:
        text = json.dumps(strict(values), indent=2, allow_nan=False)
        file.write_text(text + "\n", encoding="utf-8")
    except Exception as error:  # noqa: BLE001 - as in the module's text
        logger.warning("not written file=%s: %s", file, error)


class JsonLines:
    """Adds lines to a file.

    A line that can't be written whole is left out, with one warning until lines can be written
    again.
    """

    def __init__(self, file: Path) -> None:
        """Takes the file; nothing is read or written yet."""
        self._file = file
        self._lost = 0

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Keeps the lines that are wanted, for a run that goes on; the others are removed.

        Lines that can't be read are removed too: the last one of a killed run may be cut.

        Returns:
            The lines that were kept; none where the file can't be read or changed.
        """
        kept, texts, broken = [], [], 0
        try:
            for text in self._file.read_bytes().splitlines(keepends=True):
                try:
                    line = json.loads(text)
                    good = text.endswith(b"\n") and isinstance(line, dict)
                    wants = good and wanted(line)
                except (ValueError, KeyError, TypeError):
                    good = wants = False
                broken += not good
                if wants:
                    kept.append(line)
                    texts.append(text)
            # The old file stays until the new one is whole.
            new = self._file.with_name(f".{self._file.name}.new")
            new.write_bytes(b"".join(texts))
            new.replace(self._file)
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning("lines of the run before are not kept file=%s: %s", self._file, error)
            return []
        if broken:
            logger.warning(
                "lines that can't be read are removed file=%s lines=%d", self._file, broken
            )
        return kept

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Adds lines, all or none."""
        count = 0
        try:
            texts = []
            for count, line in enumerate(lines, 1):  # noqa: B007 - used after the loop
                texts.append(json.dumps(strict(line), allow_nan=False) + "\n")
            self._append("".join(texts).encode())
        except Exception as error:  # noqa: BLE001 - as in the module's text
            if not self._lost:
                logger.warning("lines are not written file=%s: %s", self._file, error)
            self._lost += max(1, count)
            return
        if self._lost:
            logger.warning("lines are written again file=%s lost=%d", self._file, self._lost)
            self._lost = 0

    def _append(self, data: bytes) -> None:
        # Unbuffered: what a full disk does not take must not be tried again when it is closed.
        with self._file.open("ab", buffering=0) as out:
            size = out.seek(0, os.SEEK_END)
            try:
                left = memoryview(data)
                while left:
                    left = left[out.write(left) :]
            except OSError:
                with contextlib.suppress(OSError):
                    out.truncate(size)
                raise
