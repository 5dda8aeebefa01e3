"""Find every regular expression of the project, and measure how long it takes for hostile strings of 128,000 characters.

Patterns are recorded while all modules are imported, so that those in classes, tables and comprehensions are seen, and read
from the source where a function makes them. `python -m tests.attacks.patterns plugins` measures those of a package, and with
`-` in place of a package those on its standard input. It is a process of its own, which the caller can end: `re` cannot be
interrupted everywhere.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import msgspec

from tests.attacks.hostile_strings import Hostile, hostile_strings
from tests.attacks.measuring import ROOT, Ladder, interrupting, too_slow, write

PACKAGES = ("gateway", "plugins", "sessions")

LADDER: Ladder = ((1_000, 0.05, 8), (16_000, 0.05, 4), (128_000, 0.12, 0))
"""A linear pattern needs a tenth of the time that is allowed, and a quadratic one ten seconds for the longest string: load
of the machine does not turn one into the other."""

_CALLS = ("compile", "match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")

MADE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("gateway/doctor/machine_checks.py", r"f'^{name}\\s+(\\d+|unlimited)'"): {"name": "Max open files"},
    ("gateway/cli/config_commands.py", "f'#?{re.escape(name)} = '"): {"name": "model"},
    ("gateway/config/toml_editing.py", r"f'\\A\\s*\\[{re.escape(join_key(keys))}[.\\]]'"): {
        "join_key": ".".join,
        "keys": ("channels", "home"),
    },
    ("gateway/config/toml_editing.py", r"f'{re.escape(shipped.name)}\\s*='"): {"shipped": SimpleNamespace(name="model")},
    ("gateway/http/console/config_endpoints.py", r"f'\\A{re.escape(str(path))}(?:, line \\d+)?: '"): {
        "path": "/home/config.toml"
    },
    (
        "plugins/channels/email/outbound_mail.py",
        r"f'<exuvia\\.([0-9a-z]{{1,40}})\\.[0-9a-f]{{24}}@{re.escape(domain)}>'",
    ): {"domain": "example.org"},
    ("plugins/channels/formatting/markdown_pieces.py", "f'(?m)^{first.prefix}'"): {
        "first": SimpleNamespace(prefix=r"(?:[ \t]*> ?){3}[ \t]{0,8}")
    },
    ("plugins/channels/irc/irc_channel.py", r"f'@?{name}(?:[:,]\\s*|\\s+|$)'"): {"name": "exuvia"},
    (
        "plugins/channels/irc/irc_channel.py",
        r"f'(?<![\\w\\[\\]\\\\`^{{|}}-]){name}(?![\\w\\[\\]\\\\`^{{|}}-])'",
    ): {"name": "exuvia"},
    ("plugins/channels/matrix/reader.py", r"f'(?<!\\w){re.escape(name.casefold())}(?!\\w)'"): {"name": "exuvia"},
    ("plugins/providers/hosted/encoding.py", "f'[^A-Za-z0-9_{re.escape(also)}-]'"): {"also": ".:"},
}
"""Patterns made of a function's own values, with an example of these."""


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression, where it stands, and the methods it is used by."""

    place: str
    pattern: Any
    flags: int = 0
    methods: tuple[str, ...] = ("search",)


class Refused(msgspec.Struct, frozen=True):
    """A pattern that is too slow: by which method, for how many characters, and how the string begins."""

    place: str
    pattern: str
    method: str
    size: int
    begins: str


class _Recorder:
    """Notes each pattern that a module of the project compiles while it is imported."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int, str | bytes, int], str] = {}
        self._compile: Callable[[Any, int], re.Pattern[Any]] = re._compile  # type: ignore[attr-defined]

    def __enter__(self) -> _Recorder:
        re._compile = self._noted  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        re._compile = self._compile  # type: ignore[attr-defined]

    def _noted(self, pattern: Any, flags: int) -> re.Pattern[Any]:
        function, caller = sys._getframe(1).f_code, sys._getframe(2)
        if (place := _place(caller.f_code)) and not isinstance(pattern, re.Pattern):
            self.found[place, caller.f_lineno, pattern, int(flags)] = function.co_name
        return self._compile(pattern, flags)


def _place(code: CodeType) -> str:
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    return path.relative_to(ROOT).as_posix() if inside else ""


def patterns_of(package: str) -> list[Pattern]:
    """Return every pattern of a package. Raises LookupError for one that cannot be found out."""
    with _Recorder() as recorder:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    found = {key: how for key, how in recorder.found.items() if key[0].startswith(f"{package}/")}
    uses = _Uses()
    for path in sorted((ROOT / package).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        for call in _calls(ast.parse(path.read_text())):
            if not any(at == place and call.lineno <= line <= (call.end_lineno or 0) for at, line, *_ in found):
                pattern, flags = _evaluated(place, call)
                found[place, call.lineno, pattern, flags] = call.func.attr  # type: ignore[attr-defined]
    return [
        Pattern(f"{place}:{line}", pattern, flags, uses.methods(place, line) if how == "compile" else (how,))
        for (place, line, pattern, flags), how in found.items()
    ]


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="re") | ast.Import(names=[ast.alias(name="re", asname=str())]):
                raise LookupError("A pattern is found by `re.`: import the module `re`, under this name.")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in _CALLS:
                yield node


def _evaluated(place: str, call: ast.Call) -> tuple[str | bytes, int]:
    """The pattern and the flags of a call inside a function."""
    first, *others = call.args
    written = ast.unparse(first)
    known = vars(importlib.import_module(place.removesuffix(".py").replace("/", ".").removesuffix(".__init__")))
    try:
        pattern = eval(written, dict(known), dict(MADE.get((place, written), {})))
    except NameError as error:
        raise LookupError(f"{place}:{call.lineno}: {error}; give an example in MADE for {written}") from error
    flags = 0
    for argument in [*others, *(keyword.value for keyword in call.keywords if keyword.arg == "flags")]:
        if re.fullmatch(r"re\.[A-Z]+(?: \| re\.[A-Z]+)*", ast.unparse(argument)):
            flags |= eval(ast.unparse(argument), {"re": re})
    return pattern, int(flags)


class _Uses:
    """The methods by which compiled patterns are used, found by their names."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], str] = {}
        self._attributes: dict[tuple[str, str], set[str]] = {}
        for package in PACKAGES:
            for path in (ROOT / package).rglob("*.py"):
                self._read(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))

    def methods(self, place: str, line: int) -> tuple[str, ...]:
        """By which methods; `search` for a pattern whose name does not say it."""
        used = self._attributes.get((place, self._names.get((place, line), "")), set())
        return tuple(sorted(used)) if used and used <= set(_CALLS) else ("search",)

    def _read(self, place: str, tree: ast.Module) -> None:
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._name(place, name, value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    for target, value in zip(names, values, strict=True):
                        self._name(place, ast.unparse(target), value)
        home = {alias.asname or alias.name: _home(node) for node in ast.walk(tree) for alias in _imported(node)}
        seen = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self._attributes.setdefault((home.get(node.value.id, place), node.value.id), set()).add(node.attr)
                seen.add(id(node.value))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in seen:
                self._attributes.setdefault((home.get(node.id, place), node.id), set()).add("passed on")

    def _name(self, place: str, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "re.compile":
            for line in range(value.lineno, (value.end_lineno or value.lineno) + 1):
                self._names.setdefault((place, line), name)


def _imported(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) else []


def _home(node: ast.AST) -> str:
    return f"{(getattr(node, 'module', None) or '').replace('.', '/')}.py"


def refused(pattern: Pattern) -> Refused | None:
    """Feed a pattern hostile strings; return what was too slow, None for a pattern that is linear."""
    compiled = re.compile(pattern.pattern, pattern.flags)
    source = pattern.pattern
    strings = hostile_strings(source.decode("latin-1") if isinstance(source, bytes) else source, pattern.flags)
    texts = [partial(_bytes, each) if isinstance(source, bytes) else each.text for each in strings]
    for method in pattern.methods:
        function = {"match": compiled.match, "fullmatch": compiled.fullmatch}.get(method) or _through(compiled)
        if found := too_slow(function, texts, LADDER):
            size, at = found
            return Refused(pattern.place, str(pattern.pattern), method, size, repr(texts[at](size)[:60]))
    return None


def _bytes(hostile: Hostile, size: int) -> bytes:
    return hostile.text(size).encode("latin-1", "replace")


def _through(compiled: re.Pattern[Any]) -> Callable[[Any], object]:
    def whole(text: Any) -> None:
        for _ in compiled.finditer(text):
            pass

    return whole


def main(package: str) -> None:
    """Write for each pattern a line that says which is tried, and one for each that is refused."""
    interrupting()
    given = package == "-"
    patterns = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Pattern]) if given else patterns_of(package)
    for pattern in patterns:
        write(f"tried {pattern.place} {pattern.pattern!r}")
        if found := refused(pattern):
            write(f"refused {msgspec.json.encode(found).decode()}")
    write("done")


if __name__ == "__main__":
    main(sys.argv[1])
