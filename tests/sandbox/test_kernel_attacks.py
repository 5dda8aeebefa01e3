"""Attacks on the kernel's interfaces: namespaces, mounts, devices, keys, tracing, and other ways around the filter."""

from __future__ import annotations

import os
import shutil
import signal
from textwrap import dedent

import pytest

from tests.sandbox.scene import UIDS, Scene

NOT_TRIED_WITHOUT = {
    "kexec_load": "call('kexec_load', 0, 0, None, 0)",
    "init_module": "call('init_module', b'', ctypes.c_ulong(0), b'')",
    "a change of the clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "a change of the host's name": "socket.sethostname('changed')",
    "the program that the kernel runs for core dumps": "os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))",
    "a setting of the kernel": "os.close(os.open('/proc/sys/vm/overcommit_memory', os.O_WRONLY))",
    "sysrq": "os.close(os.open('/proc/sysrq-trigger', os.O_WRONLY))",
    "the memory of the machine": "os.close(os.open('/dev/mem', os.O_RDONLY))",
    "a file system's device": "os.mknod('notes/disk', 0o60600, os.makedev(254, 0)); open('notes/disk', 'rb').read(1)",
    "the mode of a device": "os.chmod('/dev/null', 0o666)",
    "the owner of a device": "os.chown('/dev/null', os.getuid(), -1)",
    "the kernel's log": "check(libc.klogctl(2, ctypes.create_string_buffer(1), 1))",
    "the mode of the token": "os.chmod(home + '/token', 0o644)",
    "the times of the token": "os.utime(home + '/token', (0, 0))",
    "an attribute of the token": "os.setxattr(home + '/token', 'user.x', b'x')",
    "another limit of the gateway": "resource.prlimit(pid, resource.RLIMIT_NOFILE, (10, 10))",
}
"""Attacks whose success would harm the machine that the tests run on."""

CALLING = {
    "a user namespace": "call('unshare', 0x10000000)",
    "a user namespace, by clone": """
        call("clone", ctypes.c_ulong(0x10000000 | signal.SIGCHLD), 0, 0, 0, 0) or os._exit(0)
    """,
    "a namespace of mounts, by clone3": """
        arguments = struct.pack("QQQQQQQQ", 0x10000000 | 0x20000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        call("clone3", arguments, ctypes.c_ulong(len(arguments))) or os._exit(0)
    """,
    "a key": "call('add_key', b'user', b'name', b'x', ctypes.c_ulong(1), -3)",
    "the keys of the session": "call('keyctl', 11, ctypes.c_int(-3), None, ctypes.c_ulong(0))",
    "io_uring": "call('io_uring_setup', 4, ctypes.create_string_buffer(120))",
    "System V shared memory": "libc.shmctl(call('shmget', 0, ctypes.c_ulong(4096), 0o1600), 0, None)",
    "a POSIX message queue": """
        name = f"of-{os.getuid()}".encode()
        call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
        check(libc.mq_unlink(b"/" + name))
    """,
    "memory without a process": "call('memfd_create', b'x', 0)",
    "a layout of memory without randomness": "call('personality', ctypes.c_ulong(0x0040000))",
    "openat2, which a filter cannot see into": """
        how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
        call("openat2", -100, b"notes/a.md", how, ctypes.c_ulong(24))
    """,
    "a file by its number": "call('name_to_handle_at', -100, b'.', struct.pack('Ii128x', 128, 0), struct.pack('i', 0), 0)",
    "tracing of its own processes": """
        if os.fork() == 0:
            call("ptrace", ctypes.c_long(0), 0, None, None)
            os._exit(0)
        assert os.wait()[1] == 0
    """,
    "characters typed into a terminal": """
        primary, terminal = os.openpty()
        os.setsid() if os.getpid() != os.getsid(0) else None
        fcntl.ioctl(terminal, 0x540E, 0)  # TIOCSCTTY
        fcntl.ioctl(terminal, 0x5412, b"x")  # TIOCSTI
    """,
    "characters typed into a terminal, with bits above the request": """
        primary, terminal = os.openpty()
        os.setsid() if os.getpid() != os.getsid(0) else None
        fcntl.ioctl(terminal, 0x540E, 0)
        call("ioctl", terminal, ctypes.c_ulong(0x100005412), b"x")
    """,
    "a setuid file": "os.chmod('notes/a.md', 0o4755)",
    "a setuid file, by its descriptor": "os.fchmod(os.open('notes/a.md', os.O_RDWR), 0o4755)",
    "a setuid file, newly made": "os.umask(0); os.close(os.open('notes/new', os.O_CREAT | os.O_WRONLY, 0o4755))",
    "a setgid file": "os.chmod('notes/a.md', 0o2755)",
}
PRIVILEGED = {
    "a mount": """
        os.mkdir("notes/x")
        check(libc.mount(b"none", b"notes/x", b"tmpfs", 0, None))
        check(libc.umount2(b"notes/x", 2))
    """,
    "the new mount interface": "call('open_tree', -100, b'/', 1)",
    "the gateway's network": """
        with open(f"/proc/{pid}/ns/net") as file:
            call("setns", file.fileno(), 0)
    """,
    "chroot": "os.chroot('.')",
    "a map of BPF": "call('bpf', 0, struct.pack('IIII112x', 2, 4, 4, 1), 128)",
    "counters of the processor": """
        clock = struct.pack("IIQQQQ80x", 1, 120, 0, 0, 0, 1)
        call("perf_event_open", clock, -1, 0, -1, ctypes.c_ulong(0))
    """,
    "faults of memory": "call('userfaultfd', 0)",
    "another user": "os.setuid(12345)",
    "a device": "os.mknod('notes/null', 0o20666, os.makedev(1, 3))",
}
"""Attacks that only root can make without a sandbox."""


def succeeds(scene: Scene, program: str, level: str) -> bool:
    return scene.run(dedent(program) + "\nprint('BREACH')", level).breached


@pytest.mark.parametrize("attack", [*CALLING, *PRIVILEGED, *NOT_TRIED_WITHOUT])
def test_a_command_does_not_get(scene: Scene, level: str, attack: str) -> None:
    programs = CALLING | PRIVILEGED | NOT_TRIED_WITHOUT
    assert not succeeds(scene, programs[attack], level)


@pytest.mark.parametrize("attack", [*CALLING, *PRIVILEGED])
def test_without_the_sandbox_it_gets(scene: Scene, attack: str) -> None:
    assert succeeds(scene, (CALLING | PRIVILEGED)[attack], "none") == (attack in CALLING or scene.user == "root")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86-64 has a second set of numbers that a process can use")
def test_calls_by_the_numbers_of_another_architecture_kill(scene: Scene, level: str) -> None:
    program = """
        import mmap
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid); int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        print("BREACH", ctypes.CFUNCTYPE(ctypes.c_int)(address)())
    """
    result = scene.run(program, level)
    assert (result.exit_code, result.breached) == (128 + signal.SIGSYS, False)
    assert scene.run(program, "none").breached


def test_a_setuid_program_gains_nothing(scene: Scene, level: str) -> None:
    workspace = scene.workspace()
    program = workspace / "notes/id"
    shutil.copy("/usr/bin/id", program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    run = "os.execv('notes/id', ['id', '-u'])"
    uid = "0" if scene.user == "root" else str(UIDS[scene.user])
    assert scene.run(run, level, workspace).output.strip() == uid
    assert scene.run(run, "none", workspace).output.strip() == "0"
