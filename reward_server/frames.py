# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Frames between a child process and its parent, on a socket.

A frame is two little-endian u32 (bytes of JSON, bytes of binary), the JSON and the binary.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

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
    """Takes the JSON of every whole frame off the front of a buffer."""
    found = []
    while len(buffer) >= PREFIX.size:
        text, binary = PREFIX.unpack_from(buffer)
        end = PREFIX.size + text + binary
        if len(buffer) < end:
            break
        found.append(json.loads(buffer[PREFIX.size : PREFIX.size + text]))
        del buffer[:end]
    return found
