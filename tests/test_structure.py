"""What keeps the compiled kernels few and the imports one-way, by reading the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LINES = 5_000
"""Of ``kernels/`` and of compiled code elsewhere, at most. Lower it when something goes; do not raise it."""
MODULE_LINES, FUNCTION_LINES, PARAMETERS = 400, 80, 10


@pytest.fixture(scope="module")
def sources(repository: Path) -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    result = {}
    for path in sorted((repository / "src" / "graphmill").rglob("*.py")):
        parts = path.relative_to(repository / "src").with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


def is_compiled(source: str) -> bool:
    """Whether a module compiles something: it imports numba (and not its events alone), llvmlite or the kernels' ``jit``."""
    compilers = ("numba", "llvmlite", "graphmill.kernels.runtime.jit")
    wanted = (f"{name}." for name in imports(ast.parse(source)) if not name.startswith("numba.core.event"))
    return any(name.startswith(f"{compiler}.") for name in wanted for compiler in compilers)


def test_compiled_code_is_found_wherever_it_lives() -> None:
    assert is_compiled("def f():\n    import numba")
    assert is_compiled("from numba.core import cgutils")
    assert is_compiled("from graphmill.kernels.runtime.jit import jit")
    assert not is_compiled("from numba.core.event import install_listener")
    assert not is_compiled("from graphmill.kernels.runtime.threads import has_numba")


@pytest.fixture(scope="module")
def kernels(sources: dict[str, Path]) -> list[Path]:
    return [
        p for name, p in sources.items() if name.startswith("graphmill.kernels") or is_compiled(p.read_text("utf-8"))
    ]


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    yield from (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef))


def test_compiled_kernels_keep_their_budget(kernels: list[Path]) -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in kernels}
    assert sum(lines.values()) <= LINES
    assert {str(path): count for path, count in lines.items() if count > MODULE_LINES} == {}


def test_no_kernels_function_is_long_or_has_many_parameters(kernels: list[Path]) -> None:
    long, wide = [], []
    for path in kernels:
        for node in functions(path):
            name = f"{path.parent.name}/{path.name}: {node.name}"
            if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES:
                long.append(name)
            if len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > PARAMETERS:
                wide.append(name)
    assert (long, wide) == ([], [])


def test_no_kernel_unpacks_many_values_by_their_place(kernels: list[Path]) -> None:
    many = []
    for path in kernels:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Tuple):
                names = [n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
                if len(names) > PARAMETERS:
                    many.append(f"{path.parent.name}/{path.name}: {node.lineno}")
    assert many == []


def imports(tree: ast.AST) -> Iterator[str]:
    """Names that are imported, in functions as well; not those that type checkers alone import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        yield from imports(node)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other: what is left when those without imports, or importers, have gone again and again."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        process = {name for name, targets in left.items() if not targets or name not in imported}
        if not process:
            return [sorted(left)] if left else []
        left = {name: targets - process for name, targets in left.items() if name not in process}


@pytest.fixture(scope="module")
def modules(sources: dict[str, Path]) -> dict[str, set[str]]:
    """Module → modules of the package that it imports."""
    graph = {}
    for name, path in sources.items():
        wanted = imports(ast.parse(path.read_text(encoding="utf-8")))
        result = {each if each in sources else each.rpartition(".")[0] for each in wanted}
        graph[name] = {each for each in result if each in sources and each != name}
    return graph


def inside(package: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The modules and folders directly within a package, and which of these each imports."""

    def child(name: str) -> str:
        rest = name.removeprefix(f"{package}.")
        return "" if rest == name else rest.split(".")[0]

    result: dict[str, set[str]] = {child(name): set() for name in graph if child(name)}
    for name in graph:
        if child(name):
            result[child(name)] |= {child(each) for each in graph[name]} - {"", child(name)}
    return result


def test_no_imports_go_round_in_a_circle(modules: dict[str, set[str]]) -> None:
    assert circles(modules) == []


def test_no_folders_import_each_other(modules: dict[str, set[str]], sources: dict[str, Path]) -> None:
    packages = [name for name, path in sources.items() if path.name == "__init__.py"]
    assert {name: result for name in packages if (result := circles(inside(name, modules)))} == {}


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    folders = {"p": set(), "p.a.x": {"p.b.y"}, "p.b.z": {"p.a.w"}, "p.a.w": set(), "p.b.y": {"p"}}
    assert circles(folders) == []
    assert circles(inside("p", folders)) == [["a", "b"]]
