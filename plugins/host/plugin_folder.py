"""Loading a plugin from its source folder, without installation, and reloading it when it is saved.

The folder contains a `pyproject.toml` with one entry point of the group `exuvia`. Its modules are imported from the folder
or from its `src`. Naming a folder on the command line allows its plugin.
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
    """A folder contains no plugin; `str(error)` is a sentence without its full stop."""


class PluginFolder:
    """A plugin's source folder. `name` is the name of its entry point. Raises `NoPlugin` if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.name, self._target = _entry_point(self.path)

    def load(self) -> object:
        """Import the current version of the plugin. If that fails, the modules imported before stay in place."""
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
        """Remove the folder's modules from `sys.modules` and return them."""
        ours = {name: module for name, module in sys.modules.items() if self._holds(module)}
        for name in ours:
            del sys.modules[name]
        return ours

    def _holds(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and Path(file).resolve().is_relative_to(self.path)


def _entry_point(folder: Path) -> tuple[str, str]:
    """Return the name and target of the entry point in a folder's pyproject.toml."""
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
