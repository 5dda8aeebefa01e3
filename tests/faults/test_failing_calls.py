"""The disk refuses: a failed write is cut back and survived, a failed sync ends all acknowledging."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from sessions.files.committer import THREADS
from tests.faults.stage import (
    NOT_ROOT,
    check_nothing_reported_is_lost,
    journal_of,
    needs_strace,
    reported,
    said,
    writer,
)
from tests.sessions.journal_stories import CommitListener, journals_in, some_lines
from tests.stored import stored


@needs_strace
def test_after_a_failed_sync_nothing_is_acknowledged_or_synced_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    faults = ["-e", "trace=fdatasync,fsync,pwrite64,ftruncate", "-e", "inject=fdatasync:error=EIO:when=5"]
    lines = said(writer(tmp_path, "--lines", "9", "--threads", "1", strace=faults, log=log))
    assert lines == [*(f"durable j0 {seq}" for seq in range(1, 5)), "failed j0 fatal"]
    after = log.read_text().split("(INJECTED)")[1].splitlines()[1:]
    assert after == []
    assert stored(journal_of(tmp_path)).verify().events == 5  # it may be there, or not: it was never acknowledged


@needs_strace
def test_after_a_failed_sync_of_one_journal_nothing_is_acknowledged_in_any(tmp_path: Path) -> None:
    faults = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=5"]
    lines = said(writer(tmp_path, "--journals", "4", "--lines", "30", strace=faults))
    first = lines.index(next(line for line in lines if line.startswith("failed")))
    assert sorted(lines[first:]) == [f"failed j{n} fatal" for n in range(4)]
    assert sum(reported(lines).values()) <= 4 * THREADS
    check_nothing_reported_is_lost(tmp_path, reported(lines))


@needs_strace
def test_nothing_of_a_new_file_is_acknowledged_before_its_folder_is_synced(tmp_path: Path) -> None:
    faults = ["-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1"]
    assert said(writer(tmp_path, strace=faults)) == ["failed j0 fatal"]


@needs_strace
def test_the_folder_is_synced_once_between_a_new_files_first_sync_and_its_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = ["-e", "trace=fdatasync,fsync,write", "-e", "signal=none"]
    said(writer(tmp_path, "--lines", "3", strace=trace, log=log))
    steps = [line.split(" ", 1)[1].lstrip() for line in log.read_text().splitlines()]
    calls = [step.partition("(")[0] for step in steps if "j0" in step or step.startswith("fsync")]
    assert calls == ["fdatasync", "fsync", "write", "fdatasync", "write", "fdatasync", "write"]
    (folder,) = [step for step in steps if step.startswith("fsync")]
    assert f"<{tmp_path / 'sessions'}>" in folder


@needs_strace
def test_a_failed_write_is_truncated_and_the_journal_continues_when_opened_again(tmp_path: Path) -> None:
    faults = ["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EIO:when=5"]
    lines = said(writer(tmp_path, "--lines", "9", "--threads", "1", strace=faults))
    assert lines == [
        *(f"durable j0 {seq}" for seq in range(1, 5)),
        "failed j0 cut",
        *(f"durable j0 {seq}" for seq in range(5, 10)),
    ]
    assert stored(journal_of(tmp_path)).verify().events == 9
    check_nothing_reported_is_lost(tmp_path, reported(lines))


@needs_strace
@pytest.mark.parametrize("call", ["ftruncate", "fsync"])
def test_a_failed_truncation_is_fatal(tmp_path: Path, call: str) -> None:
    when = {"ftruncate": 1, "fsync": 2}[call]  # the first fsync is that of the new file's folder
    faults = ["-e", f"trace=pwrite64,{call}", "-e", "inject=pwrite64:error=EIO:when=5"]
    lines = said(
        writer(tmp_path, "--lines", "9", "--threads", "1", strace=[*faults, "-e", f"inject={call}:error=EIO:when={when}"])
    )
    assert lines == [*(f"durable j0 {seq}" for seq in range(1, 5)), "failed j0 fatal"]


@needs_strace
def test_a_failed_write_of_one_journal_does_not_affect_others(tmp_path: Path) -> None:
    faults = ["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=20"]
    lines = said(writer(tmp_path, "--journals", "4", "--lines", "15", "--threads", "1", strace=faults))
    (failed,) = [line for line in lines if line.startswith("failed")]
    assert failed.endswith("cut")
    assert reported(lines) == {f"j{n}": 15 for n in range(4)}
    assert len(lines) == 4 * 15 + 1
    check_nothing_reported_is_lost(tmp_path, reported(lines))


def test_a_file_at_its_size_limit_is_truncated_after_a_short_write_and_continues_later(tmp_path: Path) -> None:
    lines = said(writer(tmp_path, "--lines", "20", "--fsize", "3000"))
    durable = lines.index("failed j0 cut")
    assert 5 < durable < 19
    assert len(lines) == 21
    assert reported(lines) == {"j0": 20}
    assert list((tmp_path / "quarantine").iterdir()) == []  # a tail of half a line would have been set aside
    check_nothing_reported_is_lost(tmp_path, reported(lines))


@pytest.mark.skipif(NOT_ROOT, reason="a small disk of its own is mounted, for which one must be root")
def test_on_a_full_disk_a_journal_is_truncated_others_continue_and_it_recovers(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        asyncio.run(_fill(tmp_path))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)  # lazily: a test that fails leaves files open


async def _fill(disk: Path) -> None:
    lines = some_lines(3, 1000)
    async with journals_in(disk) as journals:
        greedy, modest = await journals.create("greedy"), await journals.create("modest")
        listeners = CommitListener(greedy), CommitListener(modest)
        greedy.append(lines[0], urgent=True)
        await listeners[0].until(len(lines[0]))
        for _ in range(12):
            greedy.append(b"z" * 9000 + b"\n", urgent=True)
        failure = await listeners[0].until_failed()
        assert "No space left" in str(failure)
        assert not failure.fatal
        assert journals.path("greedy").read_bytes() == lines[0]
        modest.append(lines[0], urgent=True)
        await modest.close()
        assert listeners[1].durable == [len(lines[0])]
        again, last = await journals.open("greedy", fold=lambda _: None)
        assert last.seq == 1
        again.append(lines[1], urgent=True)
        await again.close()
        assert journals.path("greedy").read_bytes() == b"".join(lines[:2])
        assert journals.pending == 0
