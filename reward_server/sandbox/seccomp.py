# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The seccomp filter: sandboxed code may not make some system calls (`syscalls`).

A filter of our own: pyseccomp needs libseccomp on the machine, and the program is a list of
numbers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from reward_server.sandbox import syscalls

_LOAD, _JUMP_EQUAL, _JUMP_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACES = 0x7E020000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPES = 1, 1, 0xF
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKETPAIR, _PRLIMIT = (53, 199), (302, 261)


def _statement(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _deny(number: int, error: int = errno.EPERM) -> list[bytes]:
    return [_statement(_JUMP_EQUAL, number, 0, 1), _statement(_RETURN, _ERRNO | error)]


def _deny_if(number: int, test: list[bytes]) -> list[bytes]:
    """Runs a test on the arguments; it jumps past the last statement to allow the call."""
    load_number = _statement(_LOAD, _NUMBER)
    block = [*test, _statement(_RETURN, _ERRNO | errno.EPERM), load_number]
    return [_statement(_JUMP_EQUAL, number, 0, len(block)), *block]


def _argument(index: int) -> bytes:
    # The low half; both architectures are little endian.
    return _statement(_LOAD, _ARGUMENTS + 8 * index)


def program(*, deny_signals: bool) -> bytes:
    """Builds the filter for this machine.

    Args:
        deny_signals: whether no signal may be sent at all, for want of a finer rule.

    Raises:
        OSError: there is no table of numbers for this architecture.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise OSError(f"system calls are known for {known}, this is {machine}")
    architecture, column = _ARCHITECTURES[machine]
    out = [
        _statement(_LOAD, _ARCHITECTURE),
        _statement(_JUMP_EQUAL, architecture, 1, 0),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, _NUMBER),
        _statement(_JUMP_LEAST, _X32, 0, 1),
        _statement(_RETURN, _ERRNO | errno.ENOSYS),
        # The C library falls back to clone, whose flags can be read.
        *_deny(_CLONE3[column], errno.ENOSYS),
        *_deny_if(_CLONE[column], [_argument(0), _statement(_JUMP_BITS, _NAMESPACES, 0, 1)]),
        # Only the process itself: the limits of others are not its business.
        *_deny_if(_PRLIMIT[column], [_argument(0), _statement(_JUMP_EQUAL, 0, 1, 0)]),
        # A pair of streams reaches nobody else, and asyncio needs one.
        *_deny_if(
            _SOCKETPAIR[column],
            [
                _argument(0),
                _statement(_JUMP_EQUAL, _AF_UNIX, 0, 3),
                _argument(1),
                _statement(0x54, _SOCK_TYPES),
                _statement(_JUMP_EQUAL, _SOCK_STREAM, 1, 0),
            ],
        ),
    ]
    for number in syscalls.numbers(column, signals=deny_signals):
        out += _deny(number)
    out.append(_statement(_RETURN, _ALLOW))
    return b"".join(out)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def apply(filter_program: bytes) -> None:
    """Puts the filter on this process and all it forks, for good; needs no_new_privs.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    argument = _Program(len(filter_program) // 8, filter_program)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(argument), 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
