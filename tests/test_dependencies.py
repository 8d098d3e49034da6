"""What is imported is declared, and what is declared is used: ``pyproject.toml`` against the sources, tests and tools."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

BY_NAME = {
    "dagster-dg-cli": ("src/graphmill/project/template/README.md.tmpl", "`dg check defs`"),
    "dagster-postgres": ("deploy/dagster.yaml", "postgres:"),
    "dagster-webserver": ("src/graphmill/orchestration/ui.py", '"dagster_webserver"'),
    "psycopg2-binary": ("deploy/dagster.yaml", "postgresql+psycopg2"),
    "s3fs": ("docs/how-to/storage.md", "graphmill[s3]"),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "mkdocstrings": ("mkdocs.yml", "- mkdocstrings:"),
    "build": (".ci/release.py", '"-m", "build"'),
    "hatchling": ("pyproject.toml", 'build-backend = "hatchling.build"'),
    "twine": (".ci/release.py", '"-m", "twine"'),
    "uv": ("tests/project/test_wheel.py", 'SCRIPTS / "uv"'),
    "import-linter": ("Makefile", "lint-imports"),
    "mypy": ("Makefile", "/mypy"),
    "ruff": ("Makefile", "ruff check"),
    "pytest-timeout": ("pyproject.toml", "\ntimeout = "),
    "pytest-xdist": ("Makefile", "pytest -n"),
    "pandas-stubs": ("src/graphmill/components/embeddings_asset.py", "import pandas"),
    "types-psutil": ("src/graphmill/memory.py", "import psutil"),
    "types-pyyaml": ("src/graphmill/search.py", "import yaml"),
}
"""Declared and never imported: a file that asks for it, and the words there (of a package of types: what it describes)."""
ELSEWHERE = {"pykeen"}
"""What benchmarks compare with, in environments of their own."""
OPTIONAL_FOLDERS = ("graphmill.kernels",)
"""Compiled kernels are imported only where numba is."""


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def declared(repository: Path) -> dict[str, set[str]]:
    """Names of distributions: ``required``, and of each extra."""
    about = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {name_of(r) for r in rows} - {"graphmill"} for extra, rows in about["optional-dependencies"].items()
    }
    return {"required": {name_of(r) for r in about["dependencies"]}, **extras}


@pytest.fixture(scope="module")
def users_extras(declared: dict[str, set[str]]) -> set[str]:
    """What the package may import where it is there: an extra that is not for working on the package itself."""
    return set().union(*(rows for extra, rows in declared.items() if extra not in ("required", "dev", "docs")))


def always(tree: ast.Module) -> Iterator[ast.stmt]:
    """What runs when a module is imported: not functions, not what a type checker alone reads, not what may fail."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from node.body + node.orelse
        elif not isinstance(node, ast.If | ast.Try):
            yield node


def imports(nodes: Iterator[ast.AST]) -> set[str]:
    """Dotted names that are imported; by their name in words as well (``import_module("umap")``)."""
    result = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            result |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module", "importorskip", "find_spec"
        ):  # fmt: skip
            result |= {str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)}
    return result


@pytest.fixture(scope="module")
def distributions() -> Callable[[set[str]], set[str]]:
    known = packages_distributions()
    inside = {"graphmill", "tests", "benchmarks"} | set(sys.stdlib_module_names)

    def of(modules: set[str]) -> set[str]:
        outside = {module.partition(".")[0] for module in modules} - inside
        return {name_of(known.get(module, [module])[0]) for module in outside} - ELSEWHERE

    return of


@cache
def imported_in(folder: Path) -> set[str]:
    """By any module under the folder, in functions as well."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py"))
    return set().union(*(imports(ast.walk(tree)) for tree in trees))


def imported_at_once(package: Path) -> set[str]:
    """By modules of the package when they are imported, kernels only where another module's import leads to them."""
    trees = {}
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    to_do = [name for name in trees if not name.startswith(OPTIONAL_FOLDERS)]
    seen, result = set(to_do), set[str]()
    while to_do:
        new = imports(always(trees[to_do.pop()]))
        result |= new
        # graphmill.a.b imports graphmill.a as well, and b is a module or something in it.
        reached = {".".join(parts[:n]) for parts in (name.split(".") for name in new) for n in range(1, len(parts) + 1)}
        to_do += reached & trees.keys() - seen
        seen |= reached
    return result


def test_what_the_package_imports_is_declared(
    repository: Path,
    declared: dict[str, set[str]],
    users_extras: set[str],
    distributions: Callable[[set[str]], set[str]],
) -> None:
    imported = distributions(imported_in(repository / "src" / "graphmill"))
    assert imported - declared["required"] - users_extras == set()


def test_what_it_cannot_be_imported_without_is_required(
    repository: Path, declared: dict[str, set[str]], distributions: Callable[[set[str]], set[str]]
) -> None:
    assert distributions(imported_at_once(repository / "src" / "graphmill")) - declared["required"] == set()


@pytest.mark.parametrize("folder", ["tests", "benchmarks", ".ci", "examples"])
def test_what_tests_and_tools_import_is_declared(
    folder: str, repository: Path, declared: dict[str, set[str]], distributions: Callable[[set[str]], set[str]]
) -> None:
    assert distributions(imported_in(repository / folder)) - set().union(*declared.values()) == set()


def test_what_is_declared_for_users_is_used_by_the_package(
    repository: Path,
    declared: dict[str, set[str]],
    users_extras: set[str],
    distributions: Callable[[set[str]], set[str]],
) -> None:
    imported = distributions(imported_in(repository / "src" / "graphmill"))
    assert (declared["required"] | users_extras) - imported - BY_NAME.keys() == set()


def test_what_is_declared_for_developers_is_used(
    repository: Path, declared: dict[str, set[str]], distributions: Callable[[set[str]], set[str]]
) -> None:
    imported = distributions(imported_in(repository / "tests") | imported_in(repository / ".ci"))
    assert (declared["dev"] | declared["docs"]) - imported - BY_NAME.keys() == set()


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_used_by_name_is_declared_and_named(name: str, repository: Path, declared: dict[str, set[str]]) -> None:
    file, words = BY_NAME[name]
    assert name in set().union(*declared.values())
    assert words in (repository / file).read_text(encoding="utf-8")


def test_what_is_pinned_has_every_declared_distribution(repository: Path, declared: dict[str, set[str]]) -> None:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {name_of(line) for line in lines if not line.startswith("#")}
    assert set().union(*declared.values()) - pinned == set()
