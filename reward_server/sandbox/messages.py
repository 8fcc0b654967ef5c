# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages over pipes, from the inside of the sandbox: a length, then JSON."""

from __future__ import annotations

import os
import struct
from typing import Any

from reward_server.sandbox import values

LENGTH = struct.Struct("<I")
MAX_BYTES = 4 * 2**20

_read, _write = os.read, os.write


class Channel:
    """Blocking ends of two pipes.

    Args:
        incoming: descriptor to read from.
        outgoing: descriptor to write to.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def receive(self) -> Any:
        """Reads one message.

        Raises:
            EOFError: the other side is gone.
        """
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return values.loads(self._exactly(size))

    def send(self, message: Any) -> None:
        """Writes one message."""
        data = values.dumps(message)
        rest = memoryview(LENGTH.pack(len(data)) + data)
        while rest:
            rest = rest[_write(self._outgoing, rest) :]

    def close(self) -> None:
        """Closes both ends."""
        os.close(self._incoming)
        os.close(self._outgoing)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = _read(self._incoming, size - len(data))
            if not part:
                raise EOFError
            data += part
        return data
