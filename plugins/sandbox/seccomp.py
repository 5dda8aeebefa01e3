"""The filter of system calls that commands run under, as a classic BPF program ("man 2 seccomp").

Calls are allowed unless they are listed: those that administer the machine, reach into other processes, use kernel objects
that namespaces or Landlock do not cover, or escape the accounting of memory. Calls newer than the list do not exist.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

Machine: TypeAlias = Literal["x86_64", "aarch64"]

_AUDIT_ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_NEWEST = 462
"""The newest system call that was reviewed for the lists: `mseal` of Linux 6.10, the same number on all architectures."""

_REFUSED = """
    acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, chroot 161 51, clock_adjtime 305 266, clock_settime
    227 112, create_module 174 -, delete_module 176 106, fanotify_init 300 262, fanotify_mark 301 263, finit_module
    313 273, fsconfig 431 431, fsmount 432 432, fsopen 430 430, fspick 433 433, init_module 175 105, ioperm 173 -,
    iopl 172 -, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, listmount 458 458,
    lookup_dcookie 212 18, migrate_pages 256 238, modify_ldt 154 -, mount 165 40, mount_setattr 442 442, move_mount
    429 429, move_pages 279 239, mq_open 240 180, mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188,
    msgsnd 69 189, name_to_handle_at 303 264, nfsservctl 180 42, open_by_handle_at 304 265, open_tree 428 428,
    perf_event_open 298 241, pidfd_getfd 438 438, pivot_root 155 41, process_madvise 440 440, process_mrelease 448
    448, process_vm_readv 310 270, process_vm_writev 311 271, ptrace 101 117, quotactl 179 60, quotactl_fd 443 443,
    reboot 169 142, request_key 249 218, semctl 66 191, semget 64 190, semop 65 193, semtimedop 220 192,
    setdomainname 171 162, sethostname 170 161, setns 308 268, settimeofday 164 170, shmat 30 196, shmctl 31 195,
    shmdt 67 197, shmget 29 194, statmount 457 457, swapoff 168 225, swapon 167 224, syslog 103 116, sysfs 139 -,
    umount2 166 39, unshare 272 97, uselib 134 -, userfaultfd 323 282, ustat 136 -, vhangup 153 58
"""
"""Calls that fail with EPERM: name, number on x86-64, number on arm64."""

_MISSING = """
    clone3 435 435, io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, memfd_create 319 279,
    memfd_secret 447 447, openat2 437 437
"""
"""Calls that fail with ENOSYS, after which programs use an older one: their arguments are in memory, where no filter sees
them (clone3, openat2), what they do passes no filter (io_uring), or their memory is counted for no process (memfd)."""

_BY_PATH = """
    chmod 90 -, chown 92 -, fchmodat 268 53, fchmodat2 452 452, fchownat 260 54, futimesat 261 -, lchown 94 -,
    lremovexattr 198 15, lsetxattr 189 6, removexattr 197 14, setxattr 188 5, socket 41 198, utime 132 -, utimes 235 -
"""
"""Calls that fail with EPERM where Landlock alone stands between a command and the machine, since it covers none of them."""

_OTHER_PROCESSES = """
    prlimit64 302 261, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119
"""
"""Calls whose first argument is a process: only 0, the process itself, is accepted."""

_PRIORITIES = "ioprio_set 251 30 1, setpriority 141 140 0"
"""Calls whose first argument says what the second one means: only one process, and only the process itself, are accepted."""

_MODES = """
    chmod 90 - 1, creat 85 - 1, fchmod 91 52 1, fchmodat 268 53 2, fchmodat2 452 452 2, mknod 133 - 1, mknodat 259 33 2
"""
"""Calls with the mode of a file, and which argument it is. No file becomes setuid or setgid."""

_OPENS = "open 2 - 1, openat 257 56 2"
"""Calls with flags, and which argument they are. A mode follows, which counts if the flags create a file."""

_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _PERSONALITY, _UTIMENSAT = (
    "clone 56 220",
    "ioctl 16 29",
    "socket 41 198",
    "socketpair 53 199",
    "personality 135 92",
    "utimensat 280 88",
)

_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT, and O_TMPFILE without O_DIRECTORY."""
_NEW_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TYPE_MASK, _STREAM, _SEQPACKET = 0xF, 1, 5

# Instructions: load a word of `struct seccomp_data`, compare, mask, return.
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


def supported(machine: str = "") -> bool:
    """Return True if the numbers of system calls are known for an architecture, by default this machine's."""
    return (machine or platform.machine()) in _AUDIT_ARCHITECTURES


def filter_program(*, isolated: bool, machine: str = "") -> bytes:
    """Return the filter as the kernel and bubblewrap read it: an array of `struct sock_filter`.

    Args:
        isolated: The command has a file tree, a network and processes of its own. Otherwise it gets no sockets, and cannot
            change the attributes of files by their path.
        machine: The architecture, by default this machine's.

    Raises:
        KeyError: The architecture is not `supported`.
    """
    machine = machine or platform.machine()
    refused = _ERROR | errno.EPERM
    checks: list[list[Instruction]] = []
    for number, _ in _calls(_REFUSED, machine):
        checks.append(_for_call(number, [_give(refused)]))
    for number, _ in _calls(_MISSING, machine):
        checks.append(_for_call(number, [_give(_ERROR | errno.ENOSYS)]))
    for number, argument in _calls(_MODES, machine):
        checks.append(_for_call(number, [_argument(argument), *_if(_ANY_BIT, _SET_ID, refused)]))
    for number, argument in _calls(_OPENS, machine):
        modes = [_argument(argument + 1), *_if(_ANY_BIT, _SET_ID, refused)]
        checks.append(_for_call(number, [_argument(argument), (_ANY_BIT, 0, len(modes), _CREATES), *modes]))
    checks.append(_for_call(_number(_CLONE, machine), [_argument(0), *_if(_ANY_BIT, _NEW_NAMESPACES, refused)]))
    terminals = [*_if(_EQUAL, _TIOCSTI, refused), *_if(_EQUAL, _TIOCLINUX, refused)]
    checks.append(_for_call(_number(_IOCTL, machine), [_argument(1), *terminals]))
    # 0 is Linux, 0xFFFFFFFF asks for the current one; others switch protections off.
    asked = [(_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, 0xFFFFFFFF), _give(refused)]
    checks.append(_for_call(_number(_PERSONALITY, machine), [_argument(0), *asked]))
    checks += list(_checks_of_shared_machine(machine, refused) if not isolated else _checks_of_sockets(machine, refused))
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        _give(_KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *_if(_GREATER, _NEWEST, _ERROR | errno.ENOSYS),
        *(instruction for check in checks for instruction in check),
        _give(_ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _checks_of_sockets(machine: str, refused: int) -> Iterator[list[Instruction]]:
    """Yield the checks that sockets are of Unix, of IP, or of netlink for asking which addresses there are."""
    socket, routes = _number(_SOCKET, machine), _unless(0, refused)
    yield _for_call(socket, [_argument(0), (_EQUAL, 0, 1 + len(routes), _NETLINK), _argument(2), *routes])
    families = [(_EQUAL, 4 - i, 0, family) for i, family in enumerate((_UNIX, _INET, _INET6, _NETLINK))]
    yield _for_call(socket, [_argument(0), *families, _give(refused)])


def _checks_of_shared_machine(machine: str, refused: int) -> Iterator[list[Instruction]]:
    """Yield the checks of calls that reach other processes and files of the same user."""
    for number, _ in _calls(_BY_PATH, machine):
        yield _for_call(number, [_give(refused)])
    for number, _ in _calls(_OTHER_PROCESSES, machine):
        yield _for_call(number, [_argument(0), *_unless(0, refused)])
    for number, process in _calls(_PRIORITIES, machine):
        yield _for_call(number, [_argument(0), *_unless(process, refused), _argument(1), *_unless(0, refused)])
    # A datagram socket of a pair can send to any address.
    types = [(_AND, 0, 0, _TYPE_MASK), (_EQUAL, 2, 0, _STREAM), (_EQUAL, 1, 0, _SEQPACKET), _give(refused)]
    yield _for_call(_number(_SOCKETPAIR, machine), [_argument(1), *types])
    # Without a path it is about an open file.
    yield _for_call(
        _number(_UTIMENSAT, machine), [_argument(1), *_unless(0, refused), _argument(1, high=True), *_unless(0, refused)]
    )


def _calls(table: str, machine: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each call of a table on an architecture, and the number that follows, 0 if none does."""
    for entry in table.split(","):
        _, x86, arm, *more = entry.split()
        number = x86 if machine == "x86_64" else arm
        if number != "-":
            yield int(number), int(more[0]) if more else 0


def _number(entry: str, machine: str) -> int:
    [(number, _)] = _calls(entry, machine)
    return number


def _for_call(number: int, body: list[Instruction]) -> list[Instruction]:
    """Return the body, run for one system call only; the number is loaded again behind it."""
    if body[0][0] == _RETURN:
        return [(_EQUAL, 0, len(body), number), *body]
    body = [*body, (_LOAD, 0, 0, _NUMBER_OFFSET)]
    return [(_EQUAL, 0, len(body), number), *body]


def _if(comparison: int, operand: int, result: int) -> list[Instruction]:
    return [(comparison, 0, 1, operand), _give(result)]


def _unless(operand: int, result: int) -> list[Instruction]:
    return [(_EQUAL, 1, 0, operand), _give(result)]


def _give(result: int) -> Instruction:
    return (_RETURN, 0, 0, result)


def _argument(index: int, *, high: bool = False) -> Instruction:
    """Load the low half of an argument: the kernel reads flags, modes and requests as 32 bits, whatever is above them."""
    return (_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index + (4 if high else 0))
