"""The structure of the code, read from its imports: layers, packages without cycles, sizes and names; and `exuvia`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import exuvia
import plugins

ROOT = Path(exuvia.__file__).parent
LAYERS = {"gateway": {"gateway", "plugins", "sessions"}, "plugins": {"plugins", "sessions"}, "sessions": {"sessions"}}

ORDER = {
    "sessions": "events state store files postgres catalog attachments",
    "plugins": ("support http api channels providers sandbox tools skills mcp policies memory facts host commands testing"),
    "gateway": (
        "support protocol config metrics auth models terminal conversations plugin_runtime status http backup"
        " doctor wiring cli"
    ),
}
"""The packages of each layer: each imports only those before it."""

MOST_IN_A_FOLDER = 15
SMALLEST_MODULE = 60
"""Lines below which a module is merged into its only importer in the same folder."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, *, at_import_time: bool) -> Iterator[str]:
    """Yield the dotted names that a module imports: all, or only those that run while it is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not at_import_time or not is_deferred(node):
            yield from imports(node, at_import_time=at_import_time)


def is_deferred(node: ast.AST) -> bool:
    """Return True if the content of this node does not run while the module is imported."""
    for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def graph() -> dict[str, frozenset[str]]:
    """The modules that each module imports, `TYPE_CHECKING` and functions included; packages' own files left out."""
    ours = {name: path for name, path in modules().items() if path.name != "__init__.py"}
    return {
        module: frozenset(name for name in imports(parsed(path), at_import_time=False) if name in ours and name != module)
        for module, path in ours.items()
    }


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_itself_and_those_below(layer: str) -> None:
    upward = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if module.split(".")[0] == layer
        for name in imports(parsed(path), at_import_time=False)
        if name.split(".")[0] in {*LAYERS, "exuvia", "tests", "benchmarks"} - LAYERS[layer]
    ]
    assert upward == []


def test_benchmarks_import_no_tests() -> None:
    importers = [
        path.name
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
        if "tests" in {name.split(".")[0] for name in imports(parsed(path), at_import_time=False)}
    ]
    assert importers == []


@pytest.mark.parametrize("layer", ORDER)
def test_the_packages_of_a_layer_import_only_those_before_them(layer: str) -> None:
    order = ORDER[layer].split()
    there = {module.split(".")[1] for module in graph() if module.startswith(f"{layer}.")}
    assert there == set(order)
    backward = [
        f"{module} imports {name}"
        for module, needed in graph().items()
        for name in needed
        if module.split(".")[0] == name.split(".")[0] == layer
        and order.index(module.split(".")[1]) < order.index(name.split(".")[1])
    ]
    assert backward == []


def folders() -> dict[str, set[str]]:
    """The modules and packages of every package, by name."""
    content = defaultdict(set)
    for module in graph():
        parts = module.split(".")
        for depth in range(1, len(parts)):
            content[".".join(parts[:depth])].add(parts[depth])
    return content


@pytest.mark.parametrize("folder", sorted(folders()))
def test_a_package_has_no_cycle_and_at_most_fifteen_members(folder: str) -> None:
    members = folders()[folder]
    assert len(members) <= MOST_IN_A_FOLDER
    needs: dict[str, set[str]] = {member: set() for member in members}
    depth = folder.count(".") + 1
    for module, needed in graph().items():
        if module.startswith(f"{folder}."):
            needs[module.split(".")[depth]] |= {name.split(".")[depth] for name in needed if name.startswith(f"{folder}.")}
    for member, needed_members in needs.items():
        needed_members.discard(member)
    assert set(TopologicalSorter(needs).static_order()) == members  # graphlib names the cycle in its error


def test_no_module_needs_itself_to_be_imported() -> None:
    ours = modules()
    needs = {
        module: {name for name in imports(parsed(path), at_import_time=True) if name in ours and name != module}
        for module, path in ours.items()
    }
    assert set(TopologicalSorter(needs).static_order()) == set(ours)


def test_a_small_module_is_not_apart_from_its_only_importer() -> None:
    importers = defaultdict(set)
    for module, needed in graph().items():
        for name in needed:
            importers[name].add(module)
    small = [
        f"{module} is imported by {importer} alone"
        for module in graph()
        if len(modules()[module].read_text(encoding="utf-8").splitlines()) < SMALLEST_MODULE and len(importers[module]) == 1
        for importer in importers[module]
        if importer.rpartition(".")[0] == module.rpartition(".")[0]
    ]
    assert small == []


@pytest.mark.parametrize("layer", LAYERS)
def test_a_modules_name_is_its_own_within_a_layer(layer: str) -> None:
    """Providers are left out: each vendor's package has a `chat` and an `errors`."""
    names = Counter(
        module.rpartition(".")[2]
        for module in graph()
        if module.startswith(f"{layer}.") and not module.startswith("plugins.providers.")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_store_is_chosen_in_two_modules() -> None:
    """Everything else uses the protocols of `sessions.store`. What is about files and servers themselves may be used
    everywhere."""
    about_files = {"files.fsync", "files.home_lock", "catalog.sqlite", "catalog.durability_check", "catalog.scan"}
    about_servers = {"postgres.server_check"}
    references = {"attachments.attachment_refs"}  # read through the protocols
    allowed = {f"sessions.{name}" for name in about_files | about_servers | references}
    importers = {
        module
        for module, needed in graph().items()
        for name in needed
        if not module.startswith("sessions.")
        and name.startswith(("sessions.files.", "sessions.postgres.", "sessions.catalog.", "sessions.attachments."))
        and name not in allowed
    }
    assert importers == {"gateway.support.storage", "gateway.wiring.open_stores"}


def test_the_api_of_plugins_needs_only_values() -> None:
    allowed = ("plugins.api.", "plugins.support.", "plugins.http.", "sessions.events.", "sessions.state.")
    others = [
        f"{module} imports {name}"
        for module, needed in graph().items()
        if module.startswith("plugins.api.")
        for name in needed
        if not name.startswith(allowed)
    ]
    assert others == []


def test_no_lambda_reads_a_name_that_is_assigned_later() -> None:
    late = []
    for module, path in modules().items():
        for function in ast.walk(parsed(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                late += [f"{module}:{line} {name}" for line, name in late_names(function)]
    assert late == []


def late_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    """Yield line and name of each local variable that a lambda reads before the line that first assigns it."""
    first: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            first[node.arg] = 0
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            first[node.id] = min(node.lineno, first.get(node.id, node.lineno))
    for node in ast.walk(function):
        if isinstance(node, ast.Lambda):
            for name in ast.walk(node.body):
                if isinstance(name, ast.Name) and first.get(name.id, 0) > node.lineno:
                    yield node.lineno, name.id


@pytest.mark.parametrize(
    ("library", "owners"),
    [
        ("pluggy", {"plugins.host.hooks", "plugins.api.hookspecs"}),
        ("httpx", {"plugins.http.client", "plugins.http.connection_pools", "plugins.http.aiohttp_transport"}),
    ],
)
def test_a_library_that_one_module_owns_is_imported_nowhere_else(library: str, owners: set[str]) -> None:
    users = {
        module
        for module, path in modules().items()
        if library in {name.split(".")[0] for name in imports(parsed(path), at_import_time=False)}
    }
    assert users <= owners


@pytest.mark.parametrize("package", sorted(name for name, path in modules().items() if path.name == "__init__.py"))
def test_the_docstring_of_a_package_is_its_map(package: str) -> None:
    text = ast.get_docstring(parsed(modules()[package])) or ""
    missing = [member for member in folders().get(package, ()) if member not in text]
    assert missing == []
    assert len(text.splitlines()) <= 50, "more than one screen"


def test_the_names_for_type_checkers_are_those_that_are_given_out() -> None:
    tree = parsed(ROOT / "plugins" / "__init__.py")
    (for_types,) = [node for node in tree.body if isinstance(node, ast.If)]
    listed = {
        str(alias.asname): str(node.module)
        for node in for_types.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert listed == plugins.PUBLIC


# --- `exuvia` ---------------------------------------------------------------------------------------------------------


def run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_exuvia_gives_out_every_public_name() -> None:
    for name in plugins.PUBLIC:
        assert getattr(exuvia, name) is getattr(plugins, name)
    with pytest.raises(AttributeError):
        _ = exuvia.nonsense


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("form", ["__init__.py", "module.py"])
def test_somebodys_own_folder_of_our_name_is_named_in_one_sentence(tmp_path: Path, layer: str, form: str) -> None:
    theirs = tmp_path / layer / "__init__.py" if form == "__init__.py" else tmp_path / f"{layer}.py"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("raise SystemExit('their code ran')")

    answer = run(["-m", "exuvia", "run"], tmp_path)

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr == (
        f"Python finds {str(theirs)!r} where Exuvia's own {layer!r} should be;"
        " start exuvia from another folder, or remove that one from PYTHONPATH.\n"
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


def test_an_installation_with_a_missing_layer_says_so(tmp_path: Path) -> None:
    (tmp_path / "exuvia.py").write_bytes((ROOT / "exuvia.py").read_bytes())
    answer = subprocess.run([sys.executable, "-S", str(tmp_path / "exuvia.py")], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Exuvia's folder 'gateway' is missing beside ")


def test_what_only_a_compaction_needs_is_not_imported_at_the_start() -> None:
    code = (
        "import sys, gateway.wiring.daemon; from plugins.host.loading import load_plugins; load_plugins(());"
        " sys.exit(bool({'plugins.policies.extract', 'plugins.policies.model_summary'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_stem_imports_the_stemmers_of_no_other_language() -> None:
    code = (
        "import sys; from plugins.support.text.stemming import porter_stem, stem;"
        " assert (porter_stem('Running'), stem('häusern', 'german')) == ('run', 'haus');"
        " sys.exit(sum(name.endswith('_stemmer') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 2
