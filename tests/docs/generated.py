"""The parts of the pages that are generated from the code. `python -m tests.docs.generated` writes them anew.

Each stands between two comments in its page, which name it. A test compares.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import plugins
from plugins.api import hookspecs
from tests.docs.configured import keys_section, restart_section, variables_section

DOCS = Path(__file__).parents[2] / "docs"

KINDS = {
    "Protocols": (
        "plugins.api.context",
        "plugins.api.models",
        "plugins.api.chat",
        "plugins.api.tool",
        "plugins.api.embedding",
        "plugins.api.command",
        "plugins.api.compaction",
        "plugins.api.memory.memory_backend",
    ),
    "Services": ("plugins.api.plugin_services", "plugins.api.fact_values", "plugins.tools.file_target"),
    "Arguments of hooks": ("plugins.api.hookspecs", "plugins.api.pruning"),
    "Errors": ("plugins.support.errors", "plugins.support.http_errors"),
    "The test kit": ("plugins.testing",),
}
"""The headings of the names, and the modules whose names stand below each; all others come last."""


FAKES = ("plugins.testing.servers.embedding_server", "plugins.testing.servers.faulty_server")
"""The modules of the kit whose classes authors derive from, method by method."""


def hooks_section() -> str:
    """Every hook with its signature and its promise."""
    tree = ast.parse(inspect.getsource(hookspecs))
    told = []
    for function in tree.body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            told.append(f"### `{function.name}`\n\n```python\n{_signature(function)}\n```\n\n{_prose(function)}\n")
    return "\n".join(told)


def names_section() -> str:
    """Every public name, as its source says it."""
    placed = {name: heading for heading, modules in KINDS.items() for name in plugins.PUBLIC if _is_in(name, modules)}
    told = []
    for heading in (*KINDS, "Values"):
        names = [name for name in sorted(plugins.PUBLIC) if placed.get(name, "Values") == heading]
        if heading == "The test kit":
            told.append(f"### {heading}\n\n" + "\n".join(_kit(name) for name in names))
        else:
            stubs = "\n\n".join(_stub(name) for name in names)
            told.append(f"### {heading}\n\n```python\n{stubs}\n```\n")
    return "\n".join(told)


def _is_in(name: str, modules: tuple[str, ...]) -> bool:
    return any(plugins.PUBLIC[name] == module or plugins.PUBLIC[name].startswith(f"{module}.") for module in modules)


# --- one name ---------------------------------------------------------------------------------------------------------


def definition_of(name: str) -> list[ast.stmt]:
    """The statement that defines a public name, and the docstring behind it."""
    body = ast.parse(inspect.getsource(importlib.import_module(plugins.PUBLIC[name]))).body
    for index, statement in enumerate(body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            return [statement]
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return body[index : index + 2] if _is_text(body[index + 1]) else [statement]
    raise AssertionError(f"{name} is not defined in {plugins.PUBLIC[name]}")


def _stub(name: str) -> str:
    """A public name as a piece of Python without what it does inside."""
    told = []
    for statement in definition_of(name):
        if isinstance(statement, ast.ClassDef):
            statement.body = list(_told(statement.body)) or [ast.Expr(ast.Constant(...))]
            statement.decorator_list = []
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            statement.body = statement.body[:1]
        told.append(_LITERAL_LINE.sub(_docstring, ast.unparse(statement)))
    return "\n".join(told)


_LITERAL_LINE = re.compile(r"""^( *)((?P<quote>["']).*(?P=quote))$""", re.MULTILINE)


def _docstring(line: re.Match[str]) -> str:
    """An attribute's docstring, which `ast.unparse` writes as a plain string, in its usual form."""
    text = line[0] if line[2].startswith('"""') else inspect.cleandoc(ast.literal_eval(line[2]))
    if line[2].startswith('"""'):
        return text
    closed = f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'
    return "\n".join(f"{line[1]}{each}" if each else "" for each in closed.split("\n"))


def _told(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name.startswith("_") and statement.name not in ("__init__", "__call__"):
                continue
            documented = ast.get_docstring(statement) is not None
            statement.body = statement.body[:1] if documented else [ast.Expr(ast.Constant(...))]
            yield statement
        elif isinstance(statement, ast.AnnAssign | ast.Assign) or _is_text(statement):
            yield statement


def _kit(name: str) -> str:
    """A class of the kit: what is to be set in it, and the names of its checks; of a fake everything."""
    (kind,) = definition_of(name)
    if not isinstance(kind, ast.ClassDef):
        assert isinstance(kind, ast.FunctionDef | ast.AsyncFunctionDef)
        return f"```python\n{_signature(kind)}\n```\n\n{_prose(kind)}\n"
    if plugins.PUBLIC[name] in FAKES:
        return f"```python\n{_stub(name)}\n```\n"
    bases = f"({', '.join(map(ast.unparse, kind.bases))})" if kind.bases else ""
    module = importlib.import_module(plugins.PUBLIC[name])
    checks = [part.name for part in kind.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    checks = [f"`{check}`" for check in checks if check.startswith("test_")]
    told = [ast.unparse(part) for part in kind.body if isinstance(part, ast.AnnAssign)]
    head = "\n".join(f"    {line}" for line in told) or "    ..."
    beginning = inspect.cleandoc(str(module.__doc__)).partition(". ")[0].partition("\n")[0].rstrip(".:")
    listed = f"\n\nChecks: {', '.join(checks)}." if checks else ""
    return f"```python\nclass {name}{bases}:\n{head}\n```\n\n{beginning}.{listed}\n"


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    function.decorator_list, documented = [], function.body
    function.body = [ast.Expr(ast.Constant(...))]
    head = ast.unparse(function).removesuffix("\n    ...").removesuffix(":")
    function.body = documented
    return head


def _prose(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return str(ast.get_docstring(function))


# --- the pages --------------------------------------------------------------------------------------------------------

SECTIONS: dict[tuple[str, str], Callable[[], str]] = {
    ("plugins.md", "hooks"): hooks_section,
    ("plugins.md", "names"): names_section,
    ("configuration.md", "keys"): keys_section,
    ("configuration.md", "restart"): restart_section,
    ("configuration.md", "variables"): variables_section,
}
"""By page and name, what makes a section."""


def between(page: str, name: str) -> tuple[int, int]:
    """Return the start and end of a generated section of a page."""
    found = re.search(rf"<!-- generated: {name} -->\n(.*?)<!-- end: {name} -->", page, re.DOTALL)
    assert found is not None, name
    return found.span(1)


def renewed(page: str, name: str, section: str) -> str:
    """The page with a section as it should be, in ruff's form, which its code has too."""
    begin, end = between(page, name)
    told = f"{page[:begin]}\n{section.strip()}\n\n{page[end:]}"
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(DOCS / "page.md"), "-"]
    return subprocess.run(ruff, input=told, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for (file, name), make in SECTIONS.items():
        path = DOCS / file
        path.write_text(renewed(path.read_text(), name, make()))
