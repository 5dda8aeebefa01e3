"""A plugin in a folder, as its author has it: loaded from there without being installed, and loaded again when it was saved.

The folder holds a `pyproject.toml` with one entry point of the group `exuvia`; its modules are imported from the folder
itself or from `src` in it. Whoever names a folder on the command line allows what is in it.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from plugins.api.hookspecs import GROUP
from plugins.support.untrusted import PluginCallFailed


class NoPlugin(PluginCallFailed):
    """There is no plugin in a folder; `str(error)` is a sentence without its end."""


class PluginFolder:
    """One such folder. `name` is what its entry point is called. NoPlugin where there is none to be found."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.name, self._target = _entry_point(self.path)

    def load(self) -> object:
        """Import the plugin as the files are now; whatever raises, what was imported before stays in its place. Runs the
        plugin's own code."""
        name, self._target = _entry_point(self.path)
        if name != self.name:
            raise NoPlugin(f"its entry point is called {name!r} now, and was {self.name!r}; a restart takes that")
        place = str(self.path / "src" if (self.path / "src").is_dir() else self.path)
        if place not in sys.path:
            sys.path.insert(0, place)
        before = self._forget()
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            importlib.invalidate_caches()
            module, _, attribute = self._target.partition(":")
            loaded: object = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                loaded = getattr(loaded, part)
        except BaseException:
            self._forget()
            sys.modules.update(before)
            raise
        finally:
            sys.dont_write_bytecode = writes  # bytecode is told apart by the second: a second save would not be seen
        return loaded

    def _forget(self) -> dict[str, ModuleType]:
        """Take the folder's modules out of Python's memory; returns them."""
        ours = {name: module for name, module in sys.modules.items() if self._holds(module)}
        for name in ours:
            del sys.modules[name]
        return ours

    def _holds(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and Path(file).resolve().is_relative_to(self.path)


def _entry_point(folder: Path) -> tuple[str, str]:
    """The name and the target of the entry point that a folder's pyproject.toml has."""
    project = folder / "pyproject.toml"
    try:
        offered = tomllib.loads(project.read_text()).get("project", {}).get("entry-points", {}).get(GROUP, {})
    except OSError as error:
        raise NoPlugin(f"{project} cannot be read: {error.strerror}; `exuvia plugins new` makes a plugin") from error
    except (ValueError, AttributeError) as error:
        raise NoPlugin(f"{project} is not what a project's file is: {error}") from error
    if not isinstance(offered, dict) or len(offered) != 1:
        raise NoPlugin(
            f'{project} needs one entry point under [project.entry-points.{GROUP}], such as weather = "my_module"'
        )
    ((name, target),) = offered.items()
    return str(name), str(target)
