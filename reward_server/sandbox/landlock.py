# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Landlock: which files sandboxed code can open.

Called through ctypes: py-landlock has had one release, and what is needed are three system calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_LINK, _TRUNCATE = 1 << 10, 1 << 12, 1 << 14
_READ = _READ_FILE | _READ_DIR
_CHANGE = (
    _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE | _MAKE_FIFO | _MAKE_LINK
)
# Number of rights that each version knows, from version 1 on; nothing outside a rule has any.
_RIGHTS = (13, 14, 15, 15, 16)
_NETWORK, _SCOPES = 0b11, 0b11
_NETWORK_VERSION, _SCOPES_VERSION, _TRUNCATE_VERSION = 4, 6, 3
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_READABLE = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"),
    *("/etc/localtime", "/etc/ld.so.cache"),
)
_FOREIGN_PACKAGES = ("site-packages", "dist-packages")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result


def version() -> int:
    """Returns the kernel's version of Landlock, 0 if it has none."""
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    except OSError:
        return 0


def scopes_signals() -> bool:
    """Says whether Landlock keeps signals inside the sandbox."""
    return version() >= _SCOPES_VERSION


def create_ruleset(folder: Path, stdlib: Path) -> int:
    """Makes the rules of all runs; returns their descriptor.

    Args:
        folder: the only folder to write in.
        stdlib: folder of the standard library.

    Raises:
        OSError: the kernel has no Landlock.
    """
    abi = version()
    if not abi:
        raise OSError("the kernel has no Landlock")
    handled = (1 << _RIGHTS[min(abi, len(_RIGHTS)) - 1]) - 1
    attributes = struct.pack(
        "QQQ",
        handled,
        _NETWORK if abi >= _NETWORK_VERSION else 0,
        _SCOPES if abi >= _SCOPES_VERSION else 0,
    )
    size = 24 if abi >= _SCOPES_VERSION else 16 if abi >= _NETWORK_VERSION else 8
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    change = _CHANGE | (_TRUNCATE if abi >= _TRUNCATE_VERSION else 0)
    _allow(ruleset, folder, _READ | change)
    libraries = map(str, Path(sys.base_prefix, "lib").glob("*.so*"))
    for path in (*_READABLE, *libraries):
        _allow(ruleset, path, _READ)
    for path in _DEVICES:
        _allow(ruleset, path, _READ_FILE | (_WRITE_FILE if path == "/dev/null" else 0))
    # Entry by entry: packages that others have put there are left out.
    _allow(ruleset, stdlib, _READ_DIR)
    for entry in stdlib.iterdir():
        if entry.name not in _FOREIGN_PACKAGES:
            _allow(ruleset, entry, _READ)
    return ruleset


def _allow(ruleset: int, path: str | Path, rights: int) -> None:
    # What the machine does not have needs no rule.
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not Path(path).is_dir():
                rights &= _READ_FILE | _WRITE_FILE
            rule = struct.pack("=Qi", rights, fd)
            _call(_ADD_RULE, ctypes.c_int(ruleset), _PATH_BENEATH, rule, ctypes.c_uint(0))
        finally:
            os.close(fd)


def restrict(ruleset: int) -> None:
    """Puts the rules on this process and all it forks, for good; needs no_new_privs.

    Raises:
        OSError: the kernel refuses.
    """
    _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
