"""Exuvia's public module: `python -m exuvia` runs the command line, `from exuvia import …` serves authors of plugins.

The packages are called `gateway`, `plugins` and `sessions`, and a user's own package of such a name may precede them on
Python's path. `shadowed` detects this before anything is imported from there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins import *  # noqa: F403 - all public names

_PACKAGES = ("gateway", "plugins", "sessions")


def shadowed() -> str | None:
    """Return a sentence that names a package that Python finds elsewhere; None if all are Exuvia's own."""
    ours = Path(__file__).resolve().parent
    for package in _PACKAGES:
        found = _location(package)
        if found is None:
            return f"Exuvia's folder {package!r} is missing beside {__file__}; reinstall exuvia."
        if found != ours / package / "__init__.py":
            return (
                f"Python finds {str(found)!r} where Exuvia's own {package!r} should be;"
                " start exuvia from another folder, or remove that one from PYTHONPATH."
            )
    return None


def _location(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None:
        return None
    # A folder without __init__.py has no origin, only search locations.
    location = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return Path(location).resolve() if location else None


def main() -> int:
    """Run the command line, which exits with its own code; return 2 if a package is shadowed."""
    if (sentence := shadowed()) is not None:
        sys.stderr.write(sentence + "\n")
        return 2
    from gateway.cli.main import main as command_line  # noqa: PLC0415 - only after the check

    command_line()
    return 0


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (sentence := shadowed()) is not None:
        raise ImportError(sentence)
    import plugins  # noqa: PLC0415 - as above

    return getattr(plugins, name)


if __name__ == "__main__":
    sys.exit(main())
