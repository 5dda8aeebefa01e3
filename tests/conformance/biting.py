"""Whether a check bites: a thing that is broken in one way fails the check that is for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def checks_of(kit: type) -> set[str]:
    """The names of a class's checks."""
    return {name for name in dir(kit) if name.startswith("test_")}


def bites(
    kit: type,
    check: str,
    sound: Mapping[str, Any],
    broken: Mapping[str, Any],
    folder: Path,
    *,
    hurry: Callable[[], object] = lambda: None,
) -> None:
    """Assert that a check passes with the sound thing, fails with the broken one, and then says how to mend it. Both are
    what the class's attributes are set to; `hurry` is called between them, since the broken one may not end by itself."""
    assert _failure(type("Sound", (kit,), dict(sound))(), check, folder / "sound") == ""
    hurry()
    told = _failure(type("Broken", (kit,), dict(broken))(), check, folder / "broken")
    assert told, f"{check} finds nothing wrong with {broken}"
    assert told.endswith(f"How to fix it:\n{inspect.cleandoc(str(getattr(kit, check).__doc__))}")


def _failure(case: Any, name: str, folder: Path) -> str:
    """The sentence with which a check fails, and how to mend it; "" where it does not."""
    test = getattr(case, name)
    wants = inspect.signature(test).parameters
    try:
        test(**({"tmp_path": folder} if "tmp_path" in wants else {}))
    except Exception as error:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return ""
