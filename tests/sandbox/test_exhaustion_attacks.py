"""Attacks that use up the machine: processes, memory, the disk, output, and time."""

from __future__ import annotations

import pytest

from tests.sandbox.scene import Result, Scene

MIB = 1024 * 1024
SMALL = {"processes": 64, "memory": 200 * MIB, "file_size": 4 * MIB, "tmp": 8 * MIB, "output": 4 * MIB}
LEVELS = ["full", "partial", "none"]
"""The limits hold without confinement too."""


def exhaust(scene: Scene, program: str, level: str, **limits: int) -> Result:
    return scene.run(program, level, limits=SMALL | limits)


@pytest.mark.parametrize("starts", ["os.fork()", "threading.Thread(target=time.sleep, args=(1000,)).start()"])
def test_a_fork_bomb_ends(scene: Scene, level: str, starts: str) -> None:
    program = f"""
        threading.stack_size(65536)
        while True:
            try:
                {starts}
            except (OSError, RuntimeError):
                pass
    """
    result = exhaust(scene, program, level, memory=4096 * MIB, cpu_seconds=20)
    assert result.reason == "processes"
    assert scene.run("print('still works')", level).output == "still works\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_gets_no_more_memory(scene: Scene, level: str) -> None:
    result = exhaust(scene, "bytearray(2 << 30)", level)
    assert "MemoryError" in result.output


@pytest.mark.parametrize("level", LEVELS)
def test_processes_together_get_no_more_memory(scene: Scene, level: str) -> None:
    program = """
        for _ in range(8):
            if os.fork() == 0:
                content = os.urandom(1 << 20) * 60
                time.sleep(1000)
        time.sleep(1000)
    """
    assert exhaust(scene, program, level).reason == "memory"


@pytest.mark.parametrize("level", LEVELS)
def test_shared_memory_is_counted_once(scene: Scene, level: str) -> None:
    program = """
        content = os.urandom(1 << 20) * 60
        children = [subprocess.Popen(["sleep", "0.5"]) for _ in range(2)]
        for _ in range(8):
            if os.fork() == 0:
                time.sleep(0.5)
                os._exit(0)
        for _ in range(8):
            os.wait()
    """
    result = exhaust(scene, program, level)
    assert (result.exit_code, result.reason) == (0, ""), result.output


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fills", ["file.write(b'x' * (1 << 20))", "os.posix_fallocate(file.fileno(), 0, 1 << 21)"])
def test_a_full_disk_is_prevented(scene: Scene, level: str, fills: str) -> None:
    program = f"""
        for number in range(1_000_000):
            with open(f"notes/{{number}}", "wb") as file:
                {fills}
    """
    result = exhaust(scene, program, level, disk=24 * MIB)
    assert (result.exit_code, result.reason) == (137, "disk"), result.output


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("grows", ["file.truncate(1 << 40)", "file.seek(1 << 40); file.write(b'x'); file.flush()"])
def test_a_file_grows_no_further_than_its_limit(scene: Scene, level: str, grows: str) -> None:
    workspace = scene.workspace()
    result = scene.run(f"file = open('notes/a.md', 'wb'); {grows}", level, workspace, limits=SMALL)
    assert result.exit_code != 0
    assert (workspace / "notes/a.md").stat().st_size <= SMALL["file_size"]


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_temporary_file_system_is_small(scene: Scene, folder: str) -> None:
    program = f"""
        for number in range(100):
            with open(f"{folder}/{{number}}", "wb") as file:
                file.write(b"x" * (1 << 20))
    """
    result = exhaust(scene, program, "full")
    assert "No space left on device" in result.output


@pytest.mark.parametrize("level", LEVELS)
def test_a_gigabyte_of_output_ends_the_command(scene: Scene, level: str) -> None:
    result = exhaust(scene, "while True: os.write(1, b'x' * (1 << 20))", level)
    assert (result.exit_code, result.reason, result.size) == (137, "output", SMALL["output"])


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_computes_for_ever_ends(scene: Scene, level: str) -> None:
    result = exhaust(scene, "while True: pass", level, cpu_seconds=1)
    assert result.exit_code in (137, 152), result  # SIGKILL follows SIGXCPU at the hard limit, which is the same here


@pytest.mark.parametrize("level", LEVELS)
def test_open_files_are_limited(scene: Scene, level: str) -> None:
    result = exhaust(scene, "print(len([os.dup(1) for _ in range(100_000)]))", level, open_files=256)
    assert "Too many open files" in result.output


@pytest.mark.parametrize("level", LEVELS)
def test_a_crash_dumps_no_core(scene: Scene, level: str) -> None:
    workspace = scene.workspace()
    before = sorted(workspace.rglob("*"))
    result = scene.run("print(resource.getrlimit(resource.RLIMIT_CORE), flush=True); os.abort()", level, workspace)
    assert (result.exit_code, result.output) == (134, "(1, 1)\n")
    assert sorted(workspace.rglob("*")) == before
