"""Keys as people paste them: one that no header can carry is named before anything is sent."""

from __future__ import annotations

from plugins.errors import CredentialsRefused


def check_copied(key: str, source: str) -> None:
    """Raises CredentialsRefused if the key holds a character that no key has. `source` is where it stands: the name of a
    setting or of a variable."""
    if not (key.isascii() and key.isprintable()):
        raise CredentialsRefused(f"{source} holds a character that no key has; copy it again.")
