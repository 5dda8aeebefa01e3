"""The `[skills]` section of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class SkillsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[skills]` section.

    Attributes:
        paths: Folders with skills, absolute or relative to the workspace, the first one first.
        pinned: Names of skills that come first in the catalogue.
        budget_tokens: The maximum size of the catalogue in tokens. It has at most 2 % of the model's window, too.
    """

    paths: tuple[_Text, ...] = ("skills",)
    pinned: tuple[_Text, ...] = ()
    budget_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 4000

    def folders(self, workspace: Path) -> list[Path]:
        """Return the folders with skills."""
        return [workspace / Path(path).expanduser() for path in self.paths]

    def protected(self, workspace: Path) -> list[str]:
        """Return the folders that lie in the workspace, relative to it and each with a slash at its end."""
        inside = (folder for folder in self.folders(workspace) if folder.is_relative_to(workspace) and folder != workspace)
        return [f"{folder.relative_to(workspace)}/" for folder in inside]

    def budget(self, window: int | None) -> int:
        """Return the tokens of the catalogue for a model with this window (None if unknown)."""
        return self.budget_tokens if window is None else min(self.budget_tokens, window // 50)
