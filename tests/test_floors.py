"""The house, read from its own imports: three floors, one direction, no circles; and its face, `exuvia`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import exuvia
import plugins

HOUSE = Path(exuvia.__file__).parent
BELOW = {"gateway": {"gateway", "plugins", "sessions"}, "plugins": {"plugins", "sessions"}, "sessions": {"sessions"}}


def modules() -> dict[str, Path]:
    """Every module of the house by its dotted name."""
    found = {}
    for floor in BELOW:
        for path in sorted((HOUSE / floor).rglob("*.py")):
            parts = path.relative_to(HOUSE).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, *, at_import_time: bool) -> Iterator[str]:
    """The dotted names that a module imports: all of them, or only those without which it cannot be imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not at_import_time or not waits(node):
            yield from imports(node, at_import_time=at_import_time)


def waits(node: ast.AST) -> bool:
    """Whether what stands in this node is not run while the module is imported."""
    for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("floor", BELOW)
def test_a_floor_imports_only_itself_and_what_is_below(floor: str) -> None:
    upward = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if module.split(".")[0] == floor
        for name in imports(parsed(path), at_import_time=False)
        if name.split(".")[0] in {*BELOW, "exuvia", "tests", "benchmarks"} - BELOW[floor]
    ]
    assert upward == []


def test_no_module_needs_itself_to_be_imported() -> None:
    ours = modules()
    needs = {
        module: {name for name in imports(parsed(path), at_import_time=True) if name in ours and name != module}
        for module, path in ours.items()
    }
    # graphlib names the circle in its error.
    assert set(TopologicalSorter(needs).static_order()) == set(ours)


@pytest.mark.parametrize(
    ("library", "owners"),
    [("pluggy", {"plugins.hooks", "plugins.hookspecs"}), ("httpx", {"plugins.transport", "plugins.doors"})],
)
def test_a_library_that_one_module_owns_is_imported_nowhere_else(library: str, owners: set[str]) -> None:
    users = {
        module
        for module, path in modules().items()
        if library in {name.split(".")[0] for name in imports(parsed(path), at_import_time=False)}
    }
    assert users <= owners


def test_the_names_for_type_checkers_are_those_that_are_given_out() -> None:
    tree = parsed(HOUSE / "plugins" / "__init__.py")
    (for_types,) = [node for node in tree.body if isinstance(node, ast.If)]
    listed = {
        str(alias.asname): str(node.module)
        for node in for_types.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert listed == plugins.PUBLIC


# --- the face ---------------------------------------------------------------------------------------------------------


def run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    return subprocess.run(
        [sys.executable, *program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_face_gives_out_every_public_name() -> None:
    for name in plugins.PUBLIC:
        assert getattr(exuvia, name) is getattr(plugins, name)
    with pytest.raises(AttributeError):
        _ = exuvia.nonsense


@pytest.mark.parametrize("floor", BELOW)
@pytest.mark.parametrize("form", ["__init__.py", "module.py"])
def test_somebodys_own_folder_of_our_name_is_named_in_one_sentence(tmp_path: Path, floor: str, form: str) -> None:
    theirs = tmp_path / floor / "__init__.py" if form == "__init__.py" else tmp_path / f"{floor}.py"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("raise SystemExit('their code ran')")

    answer = run(["-m", "exuvia", "run"], tmp_path)

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr == (
        f"Python finds {str(theirs)!r} where Exuvia's own {floor!r} should be;"
        " start exuvia from another folder, or take that one off PYTHONPATH.\n"
    )


def test_an_author_who_imports_from_such_a_place_gets_the_same_sentence(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").touch()

    answer = run(["-c", "from exuvia import hookimpl"], tmp_path)

    assert answer.returncode == 1
    assert "ImportError: Python finds" in answer.stderr


def test_a_folder_of_our_name_that_is_no_package_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    answer = run(["-c", "from exuvia import hookimpl; import exuvia; print(exuvia.shadowed())"], tmp_path)
    assert (answer.stdout, answer.stderr) == ("None\n", "")


def test_a_house_with_a_missing_floor_says_so(tmp_path: Path) -> None:
    (tmp_path / "exuvia.py").write_bytes((HOUSE / "exuvia.py").read_bytes())
    answer = subprocess.run([sys.executable, "-S", str(tmp_path / "exuvia.py")], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Exuvia's folder 'gateway' is missing beside ")


def test_what_only_a_compaction_needs_is_not_imported_at_the_start() -> None:
    code = (
        "import sys, gateway.daemon; from plugins.loading import load_plugins; load_plugins(());"
        " sys.exit(bool({'plugins.context.extract', 'plugins.context.model_summary'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=HOUSE, check=False).returncode == 0
