"""Names of tools in requests. A model may call a tool that does not exist, and its service would refuse every later request
with an invalid name, so that the conversation could not continue."""

from __future__ import annotations

import re


def accepted_name(tool: str, *, max_length: int = 64, also: str = "") -> str:
    """Return the name with an underscore for each character that the service does not accept, and before a leading digit or
    hyphen. Accepted are letters, digits, `_`, `-` and those in `also`; at most `max_length` characters are returned."""
    name = re.sub(f"[^A-Za-z0-9_{re.escape(also)}-]", "_", tool)
    if not re.match("[A-Za-z_]", name):
        name = f"_{name}"
    return name[:max_length]
