"""Exuvia's face: `python -m exuvia` for people, and `from exuvia import …` for authors of plugins.

Our folders are called `gateway`, `plugins` and `sessions`, and somebody's own folder of such a name may stand before them
on Python's path. Nothing of theirs is imported then: `shadowed` says it in one sentence.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins import *  # noqa: F403 - a face shows all of it

_FLOORS = ("gateway", "plugins", "sessions")


def shadowed() -> str | None:
    """Say in one sentence which of our folders is another's on this path; None if all are ours."""
    ours = Path(__file__).resolve().parent
    for floor in _FLOORS:
        found = _place(floor)
        if found is None:
            return f"Exuvia's folder {floor!r} is missing beside {__file__}; install exuvia again."
        if found != ours / floor / "__init__.py":
            return (
                f"Python finds {str(found)!r} where Exuvia's own {floor!r} should be;"
                " start exuvia from another folder, or take that one off PYTHONPATH."
            )
    return None


def _place(floor: str) -> Path | None:
    spec = find_spec(floor)
    if spec is None:
        return None
    # A folder without __init__.py has no origin, only search locations.
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return Path(place).resolve() if place else None


def main() -> int:
    """Run the command line, which ends the process with its own exit code; returns 2 when our folders are shadowed."""
    if (sentence := shadowed()) is not None:
        sys.stderr.write(sentence + "\n")
        return 2
    from gateway.cli.main import main as command_line  # noqa: PLC0415 - not before our own folders are known to be ours

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
