"""Packages that are installed as far as Python can tell: a folder on its path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


class Shelf:
    """A folder on Python's path with installed packages. What was imported from it is forgotten with the test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.syspath_prepend(folder)

    def install(self, package: str, entry: str, source: str) -> None:
        """A package of one module that offers itself, or what `module:name` says of it, under `entry`."""
        target, package = package, package.partition(":")[0]
        (self._folder / f"{package}.py").write_text(source)
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[exuvia]\n{entry} = {target}\n")
        # A later test's package of the same name is another one.
        self._monkeypatch.setitem(sys.modules, package, sys)
        del sys.modules[package]
