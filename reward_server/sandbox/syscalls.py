# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""System calls that sandboxed code may not make, with their numbers."""

from __future__ import annotations

# Name, number on x86_64, number on aarch64; -1 where there is no such call.
_DENIED = """
# Network.
socket 41 198
connect 42 203
accept 43 202
accept4 288 242
bind 49 200
listen 50 201
# Other processes.
ptrace 101 117
process_vm_readv 310 270
process_vm_writev 311 271
kcmp 312 272
pidfd_getfd 438 438
process_madvise 440 440
process_mrelease 448 448
move_pages 279 239
migrate_pages 256 238
sched_setaffinity 203 122
sched_setscheduler 144 119
sched_setparam 142 118
sched_setattr 314 274
setpriority 141 140
ioprio_set 251 30
# Namespaces and mounts.
mount 165 40
umount2 166 39
pivot_root 155 41
chroot 161 51
unshare 272 97
setns 308 268
open_tree 428 428
move_mount 429 429
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
mount_setattr 442 442
name_to_handle_at 303 264
open_by_handle_at 304 265
# Kernel interfaces that few programs need and many exploits use.
bpf 321 280
keyctl 250 219
add_key 248 217
request_key 249 218
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
userfaultfd 323 282
perf_event_open 298 241
fanotify_init 300 262
init_module 175 105
finit_module 313 273
delete_module 176 106
kexec_load 246 104
kexec_file_load 320 294
modify_ldt 154 -1
personality 135 92
iopl 172 -1
ioperm 173 -1
syslog 103 116
# The machine.
reboot 169 142
swapon 167 224
swapoff 168 225
acct 163 89
quotactl 179 60
quotactl_fd 443 443
settimeofday 164 170
clock_settime 227 112
clock_adjtime 305 266
adjtimex 159 171
sethostname 170 161
setdomainname 171 162
vhangup 153 58
# Memory that no limit counts, or that outlives the process.
memfd_create 319 279
memfd_secret 447 447
shmget 29 194
semget 64 190
msgget 68 186
mq_open 240 180
# Landlock does not cover these, so files of the same user anywhere would be open to them.
chmod 90 -1
fchmod 91 52
fchmodat 268 53
fchmodat2 452 452
chown 92 -1
fchown 93 55
lchown 94 -1
fchownat 260 54
utime 132 -1
utimes 235 -1
futimesat 261 -1
utimensat 280 88
setxattr 188 5
lsetxattr 189 6
fsetxattr 190 7
removexattr 197 14
lremovexattr 198 15
fremovexattr 199 16
setxattrat 463 463
removexattrat 466 466
file_setattr 469 469
truncate 76 45
open_tree_attr 467 467
"""
_SIGNALS = """
kill 62 129
tkill 200 130
tgkill 234 131
rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240
pidfd_send_signal 424 424
"""


def numbers(column: int, *, signals: bool) -> list[int]:
    """Returns the numbers of the calls to deny.

    Args:
        column: 0 for x86_64, 1 for aarch64.
        signals: whether those that send signals are among them.
    """
    lines = (_DENIED + _SIGNALS if signals else _DENIED).splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [int(row[column + 1]) for row in rows if int(row[column + 1]) >= 0]
