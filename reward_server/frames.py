# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Frames between a child process and its parent, on a socket.

A frame is two little-endian u32 (bytes of JSON, bytes of binary), the JSON and the binary.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from reward_server.printable import sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PREFIX = struct.Struct("<II")


def encode(header: dict[str, Any], binary: Sequence[memoryview] = ()) -> list[memoryview]:
    """Makes a frame, in parts to be sent one after the other."""
    text = json.dumps(header).encode()
    prefix = PREFIX.pack(len(text), sum(part.nbytes for part in binary))
    return [memoryview(prefix + text), *(part for part in binary if part.nbytes)]


def decode(read: Callable[[int], bytearray]) -> tuple[dict[str, Any], bytes]:
    """Reads a frame with a function that reads exactly so many bytes."""
    text, binary = PREFIX.unpack(read(PREFIX.size))
    return json.loads(read(text)), bytes(read(binary))


def split(buffer: bytearray) -> list[dict[str, Any]]:
    """Takes the JSON of every whole frame off the front of a buffer.

    Frames of children hold what reward functions say: their texts are made fit for messages here.
    """
    found = []
    while len(buffer) >= PREFIX.size:
        text, binary = PREFIX.unpack_from(buffer)
        end = PREFIX.size + text + binary
        if len(buffer) < end:
            break
        data = buffer[PREFIX.size : PREFIX.size + text]
        value = json.loads(data)
        # Whatever may need it is escaped in JSON, or is the one control character that is not.
        found.append(_sendable(value) if b"\\u" in data or b"\x7f" in data else value)
        del buffer[:end]
    return found


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    if isinstance(value, dict):
        return {sendable(key): _sendable(item) for key, item in value.items()}
    return value
