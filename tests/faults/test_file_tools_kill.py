"""A kill at each step of replacing a file of the workspace."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.replacer import NEW, OLD, STEPS


@pytest.mark.parametrize("step", range(1, len(STEPS) + 2))
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new(tmp_path: Path, step: int) -> None:
    note = tmp_path / "note.md"
    note.write_text(OLD)
    done = subprocess.run([sys.executable, "-m", "tests.faults.replacer", str(tmp_path), str(step)], check=False)

    renamed = STEPS.index("rename") + 1
    # The call after the last step is never reached: nothing else is done, and nothing is done in another order.
    assert done.returncode == (-signal.SIGKILL if step <= len(STEPS) else 0)
    assert note.read_text() == (OLD if step <= renamed else NEW)
    beside = [path.name for path in tmp_path.iterdir() if path != note]
    assert len(beside) == (1 if step <= renamed else 0)
