"""Whether a check bites: a thing that is broken in one way fails the check that is for it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any


def checks_of(kit: type) -> set[str]:
    """The names of a class's checks."""
    return {name for name in dir(kit) if name.startswith("test_")}


def failure(case: Any, name: str, folder: Path) -> str:
    """The sentence with which a check fails, and how to mend it; "" where it does not."""
    test = getattr(case, name)
    wants = inspect.signature(test).parameters
    try:
        test(**({"tmp_path": folder} if "tmp_path" in wants else {}))
    except Exception as error:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return ""
