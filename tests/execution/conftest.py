"""What the tests of commands need of the machine."""

from __future__ import annotations

import shutil

import pytest

PROGRAMS = ("bash", "bwrap", "curl", "git", "openssl")


@pytest.fixture(autouse=True, scope="session")
def _programs() -> None:
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"needs {', '.join(missing)}; CI installs them")
