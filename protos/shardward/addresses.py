# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses of servers: their form, and why nothing answers at one.

Here since trainers and servers both say it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path

SOCKET_PATH_BYTES = 107
_EITHER = "unix:PATH or HOST:PORT"
# What gRPC says, and what it means to somebody who set an address.
_PLAIN = (
    (r"address lookup failed for (.+):\d+: (.+?)\]?$", r"the name \1 does not resolve (\2)"),
    (r"Failed parsing HTTP/2|http1\.x server", "what listens there does not speak gRPC"),
    (r"timed out before receiving SETTINGS|tcp handshaker shutdown", "it does not answer"),
    (r"(?:connect failed: addr: .* error|Failed to connect to remote host): (?:.*: )?(.+)", r"\1"),
    (r"recvmsg:Connection timed out|(?:keepalive|ping).* timeout", "the connection went dead"),
    (r"^Stream removed \((.+)\)$", r"\1"),
    (r"^[A-Z_]+: (?:ip|unix)\S+: (.+)$", r"\1"),
)


def broken_rule(address: str) -> str:
    """Says what an address must be that it is not.

    Returns:
        The rule for the sentence "must be <rule>", or "" if the address is well formed.

    Example:
        >>> broken_rule("::1:5000")
        '[ADDRESS]:PORT for an IPv6 address'
    """
    if address.startswith("unix:"):
        return _broken_path_rule(address.removeprefix("unix:"))
    if "/" in address:
        return _broken_url_rule(address)
    return _broken_host_rule(address)


def _broken_url_rule(address: str) -> str:
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/+", address):
        return f"{_EITHER}, without {scheme[0]}"
    return _EITHER if _broken_host_rule(address.rstrip("/")) else f"{_EITHER}, without / at its end"


def _broken_host_rule(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not host or not colon or any(c.isspace() for c in address):
        return _EITHER
    if not (port.isascii() and port.isdigit() and 1 <= int(port) < 2**16):
        return "HOST:PORT with a port in [1, 65535]"
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare or host != bare:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            return _EITHER
        if host != f"[{bare}]":
            return "[ADDRESS]:PORT for an IPv6 address"
    return ""


def _broken_path_rule(path: str) -> str:
    if path.startswith("//"):
        path = path.removeprefix("//")
        if not path.startswith("/"):
            return "unix:PATH or unix:///ABSOLUTE/PATH"
    if not path.strip("/"):
        return _EITHER
    if path.endswith("/"):
        return f"{_EITHER}, without / at its end"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        return f"unix:PATH with at most {SOCKET_PATH_BYTES} bytes of path"
    return ""


def socket_path(address: str) -> Path | None:
    """Path of a unix socket, or None for another address.

    Example:
        >>> socket_path("unix:///tmp/s")
        PosixPath('/tmp/s')
    """
    if not address.startswith("unix:"):
        return None
    return Path(address.removeprefix("unix:").removeprefix("//"))


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def cause(details: str) -> str:
    """Says in a few words why a call got no answer.

    Args:
        details: what gRPC says of it.

    Example:
        >>> cause("failed to connect to all addresses; last error: UNKNOWN: unix:/s: No such file")
        'No such file'
    """
    text = details.rpartition("last error: ")[2]
    for pattern, plain in _PLAIN:
        if found := re.search(pattern, text):
            return found.expand(plain)
    return text


def remedy(address: str, why: str, *, setting: str) -> str:
    """Says what to do where nothing answers.

    Args:
        address: that was called.
        why: what `cause` says.
        setting: what holds the address, for messages.

    Example:
        >>> remedy("unix:/tmp/s", "Connection refused", setting="--reward-endpoint")
        'Start it (reward-server serve --listen unix:/tmp/s ...) or correct --reward-endpoint.'
    """
    path = socket_path(address)
    if "does not resolve" in why or "does not speak gRPC" in why:
        return f"Correct {setting}."
    if why in ("no answer", "it does not answer"):
        first = "See its log"
    elif path is not None and "Permission denied" in why:
        first = "Call as the user who started it"
    elif path is not None and path.exists() and not path.is_socket():
        first = f"{path} is no socket: take another path"
    elif path is not None and not path.parent.is_dir():
        first = f"Make the folder {path.parent}"
    elif is_local(address):
        return f"Start it (reward-server serve --listen {address} ...) or correct {setting}."
    else:
        first = "Start a reward server there"
    return f"{first}, or correct {setting}."
