"""Creating a plugin package from a template."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import msgspec

_HERE = Path(__file__).parent

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""A valid name, as `plugins.host.validation` requires."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of plugin: its description, and the configuration that uses it."""

    what: str
    use: str


KINDS = {
    "provider": Kind(
        what="a chat provider",
        use='[agent]\nmodel = "__NAME__:small"\n\n[providers.__NAME__]\napi_key = "env:__VARIABLE___API_KEY"',
    ),
    "embedding": Kind(
        what="an embedding provider",
        use='[memory.embedding]\nprovider = "__NAME__"\napi_key = "env:__VARIABLE___API_KEY"',
    ),
    "tool": Kind(what="a tool for the model", use="[plugins.__NAME__]\nlongest = 2000"),
    "command": Kind(what="a command that people type", use="# Then type /__NAME__ in any conversation."),
    "channel": Kind(
        what="a channel to a messaging service",
        use=(
            '[channels.home]\nkind = "__NAME__"\nbase_url = "https://chat.example.com"\ntoken = "env:__VARIABLE___TOKEN"\n'
            'people = { "ana" = "owner" }'
        ),
    ),
    "policy": Kind(
        what="a policy of pruning and compaction",
        use="[plugins.__NAME__]\nkeep_results = 8",
    ),
}
"""The kinds, by the argument of `exuvia plugins new`."""


class NotWritten(Exception):
    """The package cannot be created; the message is a sentence for people."""


def write_package(kind: str, name: str, folder: Path) -> list[Path]:
    """Create a package for one of `KINDS` in a folder that is empty or does not exist. Return its files.

    Raises:
        NotWritten: The name is invalid, or the folder is not empty.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise NotWritten(f"{name!r} cannot be its name: lower-case letters, digits and _, a letter first, up to 32.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NotWritten(f"{folder} already exists and is not empty; choose another folder with --into.")
    written = []
    for path, template in (
        ("pyproject.toml", "pyproject.toml.txt"),
        ("README.md", "README.md.txt"),
        (".gitignore", "gitignore.txt"),
        (f"exuvia_{name}.py", f"{kind}.py.txt"),
        (f"tests/test_{name}.py", f"test_{kind}.py.txt"),
    ):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled((_HERE / template).read_text(), KINDS[kind], name))
        written.append(file)
    return written


def _filled(text: str, kind: Kind, name: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    for mark, value in (
        ("__USE__", kind.use),
        ("__WHAT__", kind.what),
        ("__PACKAGE__", f"exuvia-{name.replace('_', '-')}"),
        ("__MODULE__", f"exuvia_{name}"),
        ("__CLASS__", camel),
        ("__VARIABLE__", name.upper()),
        ("__NAME__", name),
    ):
        text = text.replace(mark, value)
    return text
