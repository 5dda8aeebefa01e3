"""The filter of system calls, interpreted: what it answers on both architectures."""

from __future__ import annotations

import errno
import os
import signal
import struct

import pytest

from plugins.sandbox.seccomp import filter_program, supported

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"
REFUSED, MISSING = "EPERM", "ENOSYS"


def answer(machine: str, number: int, *arguments: int, isolated: bool = True, architecture: int | None = None) -> str:
    """Run the program on a system call as the kernel does, and return what it answers."""
    program = list(struct.iter_unpack("=HBBI", filter_program(isolated=isolated, machine=machine)))
    call = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *(*arguments, *[0] * 6)[:6])
    accumulator = position = 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", call, operand)
            case 0x54:
                accumulator &= operand
            case 0x06 if operand & 0x00050000 == 0x00050000 and not operand & 0x7FFA0000:
                return errno.errorcode[operand & 0xFFFF]
            case 0x06:
                return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}[operand]
            case _:
                holds = {0x15: accumulator == operand, 0x25: accumulator > operand, 0x45: bool(accumulator & operand)}[code]
                position += if_true if holds else if_false


CALLS = {
    "x86_64": {"read": 0, "ptrace": 101, "openat": 257, "clone": 56, "clone3": 435, "socket": 41, "fchmod": 91, "ioctl": 16},
    "aarch64": {
        "read": 63,
        "ptrace": 117,
        "openat": 56,
        "clone": 220,
        "clone3": 435,
        "socket": 198,
        "fchmod": 52,
        "ioctl": 29,
    },
}
SETUID = 0o4755


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("isolated", [True, False])
def test_what_the_filter_answers(machine: str, isolated: bool) -> None:
    numbers = CALLS[machine]

    def asked(name: str, *arguments: int) -> str:
        return answer(machine, numbers[name], *arguments, isolated=isolated)

    assert asked("read", 0, 0, 100) == ALLOWED
    assert asked("ptrace", 16, 1) == REFUSED
    assert asked("clone3", 0, 88) == MISSING
    assert asked("clone", signal.SIGCHLD) == ALLOWED
    assert asked("clone", 0x10000000 | signal.SIGCHLD) == REFUSED
    assert asked("openat", 0, 0, os.O_CREAT | os.O_WRONLY, 0o644) == ALLOWED
    assert asked("openat", 0, 0, os.O_CREAT | os.O_WRONLY, SETUID) == REFUSED
    assert asked("openat", 0, 0, os.O_TMPFILE | os.O_RDWR, SETUID) == REFUSED
    assert asked("openat", 0, 0, os.O_RDONLY, SETUID) == ALLOWED, "without a file to create, the mode is whatever was there"
    assert asked("fchmod", 3, 0o755) == ALLOWED
    assert asked("fchmod", 3, SETUID) == REFUSED
    assert asked("ioctl", 0, 0x5401) == ALLOWED
    assert asked("ioctl", 0, 0x5412) == asked("ioctl", 0, 1 << 32 | 0x5412) == REFUSED
    for family in (1, 2, 10):
        assert asked("socket", family, 1) == (ALLOWED if isolated else REFUSED)
    assert asked("socket", 16, 3, 0) == (ALLOWED if isolated else REFUSED)
    assert asked("socket", 16, 3, 9) == asked("socket", 40, 1) == asked("socket", 17, 3) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_of_another_architecture_kill_and_newer_ones_are_missing(machine: str) -> None:
    assert answer(machine, 0, architecture=0x40000003) == KILLED
    assert answer(machine, 463) == answer(machine, 0xFFFFFFFF) == MISSING
    assert answer(machine, 0x40000000 | CALLS[machine]["ptrace"]) == MISSING, "the x32 numbers of x86-64"


def test_other_architectures_are_not_supported() -> None:
    assert supported("x86_64")
    assert not supported("riscv64")
    with pytest.raises(KeyError):
        filter_program(isolated=True, machine="riscv64")
