"""Attacks on processes: the gateway's memory, environment and life, and processes that outlive their command."""

from __future__ import annotations

import pytest

from tests.sandbox.scene import SLEEP, Scene

REACHING = {
    "the environment of the gateway": "assert b'SECRET' in open(f'/proc/{pid}/environ', 'rb').read(); print('BREACH')",
    "the arguments of the gateway": "print('BREACH', open(f'/proc/{pid}/cmdline').read())",
    "the memory of the gateway by its file": """
        with open(f"/proc/{pid}/mem", "rb", 0) as file:
            file.seek(facts["address"])
            assert file.read(len(facts["secret"])) == facts["secret"].encode()
        print("BREACH")
    """,
    "the memory of the gateway by process_vm_readv": """
        size = len(facts["secret"])
        content = ctypes.create_string_buffer(size)
        here = struct.pack("QQ", ctypes.addressof(content), size)
        there = struct.pack("QQ", facts["address"], size)
        call("process_vm_readv", pid, here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), ctypes.c_ulong(0))
        assert content.raw == facts["secret"].encode()
        print("BREACH")
    """,
    "the gateway by ptrace": """
        PTRACE_SEIZE = 0x4206  # does not stop it; ends with this process
        call("ptrace", ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(pid), None, None)
        print("BREACH")
    """,
    "the descriptors of the gateway": """
        call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0)
        print("BREACH")
    """,
    "the open files of the gateway": "os.readlink(f'/proc/{pid}/fd/0'); print('BREACH')",
    "whether the gateway shares something": """
        call("kcmp", pid, pid, 0, ctypes.c_ulong(0), ctypes.c_ulong(0))
        print("BREACH")
    """,
    "the limits of the gateway": "resource.prlimit(pid, resource.RLIMIT_CORE); print('BREACH')",
    "the priority of the gateway": "os.setpriority(os.PRIO_PROCESS, pid, 5); print('BREACH')",
    "the priority of the gateway's process group": "os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 5); print('BREACH')",
    "the processors of the gateway": "os.sched_setaffinity(pid, os.sched_getaffinity(pid)); print('BREACH')",
    "the list of processes": "assert str(pid) in os.listdir('/proc'); print('BREACH')",
    "the parent's environment": """
        open(f"/proc/{os.getppid()}/environ", "rb").read()
        assert os.getppid() > 2
        print("BREACH")
    """,
}


@pytest.mark.parametrize("attack", REACHING)
def test_a_command_cannot_reach(scene: Scene, level: str, attack: str) -> None:
    result = scene.run(REACHING[attack], level)
    assert not result.breached, result.output
    assert result.exit_code != 0


@pytest.mark.parametrize("attack", REACHING)
def test_without_the_sandbox_it_reaches(scene: Scene, attack: str) -> None:
    result = scene.run(REACHING[attack], "none")
    assert result.breached, result.output


SIGNALLING = {
    "by kill": "os.kill(pid, signal.SIGUSR1)",
    "by a process descriptor": "signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGUSR1)",
    "through its process group": "os.killpg(os.getpgid(pid), signal.SIGUSR1)",
    "by asking for signals about a descriptor": """
        ours, theirs = socket.socketpair()
        fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGUSR1)
        fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        theirs.send(b"x")
    """,
}


@pytest.mark.parametrize("attack", SIGNALLING)
def test_a_command_cannot_signal_the_gateway(scene: Scene, level: str, attack: str) -> None:
    assert scene.run(SIGNALLING[attack], level).signals == 0


@pytest.mark.parametrize("attack", SIGNALLING)
def test_without_the_sandbox_it_signals_the_gateway(scene: Scene, attack: str) -> None:
    result = scene.run(SIGNALLING[attack], "none")
    assert result.signals == 1, result.output


@pytest.mark.parametrize("victim", ["os.getppid()", "-1", "1"])
def test_killing_all_that_a_command_can_reach_ends_only_itself(scene: Scene, level: str, victim: str) -> None:
    """Not without the sandbox: it would end every process of the user."""
    result = scene.run(f"os.kill({victim}, signal.SIGKILL)", level)
    assert result.exit_code in (0, 1, 137), result.output
    assert scene.ask("facts") == scene.facts
    assert scene.run("print('still works')", level).output == "still works\n"


SURVIVING = {
    "in the background": "subprocess.Popen(['sleep', '1234.5'])",
    "in a session of its own": "subprocess.Popen(['sleep', '1234.5'], start_new_session=True)",
    "by a double fork": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1234.5"])
            os._exit(0)
        os.wait()
    """,
    "ignoring signals": """
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        subprocess.Popen(["sleep", "1234.5"], start_new_session=True, restore_signals=False)
    """,
    "below a reaper of its own": """
        libc.prctl(36, 1, 0, 0, 0)
        if os.fork() == 0:
            os.setsid()
            subprocess.Popen(["sleep", "1234.5"]).wait()
    """,
    "stopped": "os.kill(subprocess.Popen(['sleep', '1234.5']).pid, signal.SIGSTOP)",
    "with its parent dead": """
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "1234.5"])
        os.kill(os.getpid(), signal.SIGKILL)
    """,
}


@pytest.mark.parametrize("attack", SURVIVING)
@pytest.mark.parametrize("level", ["full", "partial", "none"])
def test_nothing_outlives_a_command(scene: Scene, level: str, attack: str) -> None:
    """Without confinement too: that is the supervisor's doing."""
    result = scene.run(SURVIVING[attack].replace("1234.5", SLEEP), level)
    assert result.exit_code in (0, 137), result.output
    assert scene.processes() == []


def test_a_command_inherits_only_its_input_and_output(scene: Scene, level: str) -> None:
    program = """
        found = []
        for number in range(1024):
            try:
                os.fstat(number)
                found.append(number)
            except OSError:
                pass
        print(found)
    """
    assert scene.run(program, level).output == "[0, 1, 2]\n"


def test_a_command_has_an_environment_of_its_own(scene: Scene, level: str) -> None:
    found = scene.run("print(sorted(os.environ))", level).output
    assert found.strip() == str(
        sorted(
            ["FACTS", "GIT_CONFIG_NOSYSTEM", "HOME", "LANG", "PATH", "TMPDIR", "USER", *(["PWD"] if level == "full" else [])]
        )
    )


def test_a_command_has_no_capability_and_can_gain_none(scene: Scene, level: str) -> None:
    program = """
        lines = [line.split() for line in open("/proc/self/status")]
        print([line[1] for line in lines if line[0].startswith(("Cap", "NoNewPrivs", "Seccomp:"))])
    """
    if level == "partial":  # it does not see the files of processes, which another program asks the kernel for
        program = """
            header, found = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
            check(libc.capget(header, found))
            print(found.raw == bytes(24), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0))
        """
        assert scene.run(program, level).output == "True 1 2\n"
    else:
        zero = "0000000000000000"
        assert scene.run(program, level).output.strip() == str([zero, zero, zero, zero, zero, "1", "2"])
