"""What is imported is declared, and what is declared is used: in ``pyproject.toml``, by reading the sources."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

STARTED = {"dagster-webserver", "dagster-dg-cli", "pyarrow", "tensorboard"}
"""Used as commands, or through pandas and fsspec, beside what is imported."""
BY_NUMBA = {"llvmlite"}
"""numba brings exactly the version that it was built for."""


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, set[str]]:
    about = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: {name_of(r) for r in rows} for name, rows in about["optional-dependencies"].items()}
    return {"required": {name_of(r) for r in about["dependencies"]}, **extras}


@pytest.fixture(scope="module")
def imported(repository: Path) -> set[str]:
    """Distributions that the package imports anywhere, in functions as well."""
    modules: set[str] = set()
    for source in (repository / "src" / "graphmill").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    known = packages_distributions()
    outside = modules - set(sys.stdlib_module_names) - {"graphmill"}
    return {name_of(known.get(module, [module])[0]) for module in outside}


def test_every_import_is_declared(project: dict[str, set[str]], imported: set[str]) -> None:
    declared = set().union(*(rows for extra, rows in project.items() if extra not in ("dev", "docs")))
    assert imported - declared - BY_NUMBA == set()


def test_every_requirement_is_used(project: dict[str, set[str]], imported: set[str]) -> None:
    assert project["required"] - imported - STARTED == set()
