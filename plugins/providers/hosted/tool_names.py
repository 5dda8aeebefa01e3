"""Names of tools as services take them. A model may call what does not exist, and its service then refuses that name in
every later request, so that the conversation could not go on."""

from __future__ import annotations

import re


def taken_name(tool: str, *, longest: int = 64, also: str = "") -> str:
    """The name with an underscore for each character that a service does not take. It takes letters, digits, `_`, `-` and
    those in `also`, and so many characters as `longest` says; a name never begins with a digit or a mark."""
    name = re.sub(f"[^A-Za-z0-9_{re.escape(also)}-]", "_", tool)
    if not re.match("[A-Za-z_]", name):
        name = f"_{name}"
    return name[:longest]
