# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""System calls that sandboxed code may not make.

A filter of our own: pyseccomp needs libseccomp on the machine, and the program is a list of
numbers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACES = 0x7E020000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPES = 1, 1, 0xF
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Numbers on x86_64 and aarch64; -1 where there is no such call.
_DENIED: dict[str, tuple[int, int]] = {
    # Network.
    **{"socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242)},
    **{"bind": (49, 200), "listen": (50, 201)},
    # Other processes.
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440)},
    **{"process_mrelease": (448, 448), "move_pages": (279, 239), "migrate_pages": (256, 238)},
    **{"sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119)},
    **{"sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140)},
    "ioprio_set": (251, 30),
    # Namespaces and mounts.
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428)},
    **{"move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    # Kernel interfaces that few programs need and many exploits use.
    **{"bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"userfaultfd": (323, 282), "perf_event_open": (298, 241), "fanotify_init": (300, 262)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "modify_ldt": (154, -1)},
    **{"personality": (135, 92), "iopl": (172, -1), "ioperm": (173, -1), "syslog": (103, 116)},
    # The machine.
    **{"reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89)},
    **{"quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170)},
    **{"clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171)},
    **{"sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58)},
    # Memory that no limit counts, or that outlives the process.
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194)},
    **{"semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)},
    # Landlock does not cover these, so files of the same user anywhere would be open to them.
    **{"chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54)},
    **{"utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16)},
    **{"setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469)},
    **{"truncate": (76, 45), "open_tree_attr": (467, 467)},
}
_SIGNALS: dict[str, tuple[int, int]] = {
    **{"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)},
    **{"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)},
    "pidfd_send_signal": (424, 424),
}
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
    for numbers in (_DENIED | _SIGNALS if deny_signals else _DENIED).values():
        if numbers[column] >= 0:
            out += _deny(numbers[column])
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
