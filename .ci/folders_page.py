"""Writes ``docs/explanation/folders.md`` and its pictures: what each folder of the package is for, and what it imports.

The order is that of the contract "Data moves one way" in ``pyproject.toml``, and within a folder that of its imports; the
sentences are the folders' own docstrings. Run by ``make pages``; a test holds that the files are current and that the
pictures show no circle.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE, IMAGES = ROOT / "docs" / "explanation" / "folders.md", ROOT / "docs" / "images"
CELL, LETTER = 22, 7


def order() -> list[str]:
    """Folders and modules, the uppermost layer first; kernels, which import nothing of the package, last."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in about["contracts"] if each["name"] == "Data moves one way")
    named = [name.strip().removeprefix("graphmill.") for layer in layers for name in layer.split("|")]
    names = [*named, "kernels"]
    if missing := sorted(set(children()) - set(names)):
        raise SystemExit(f"the contract in pyproject.toml has no place for {', '.join(missing)}")
    return names


@cache
def _graph() -> grimp.ImportGraph:
    """All imports, in functions as well; not what type checkers alone import."""
    return grimp.build_graph("graphmill", exclude_type_checking_imports=True, cache_dir=None)


def children(name: str = "") -> list[str]:
    """The modules and folders directly within a folder; "": within the package."""
    package = f"graphmill.{name}".removesuffix(".")
    return sorted(each.removeprefix("graphmill.") for each in _graph().find_children(package))


def imports(names: list[str]) -> dict[str, set[str]]:
    """Folder → those that it imports; a folder within another is no import of it."""

    def does(a: str, b: str) -> bool:
        if f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}."):
            return False
        a, b = f"graphmill.{a}", f"graphmill.{b}"
        return bool(_graph().direct_import_exists(importer=a, imported=b, as_packages=True))

    return {a: {b for b in names if does(a, b)} for a in names}


def _importers_first(names: list[str]) -> list[str]:
    """Names in an order in which imports go forward; those of a circle last."""
    left, out = imports(names), list[str]()
    while left:
        imported = set().union(*left.values())
        free = [name for name in left if name not in imported] or list(left)
        out += free
        left = {name: below for name, below in left.items() if name not in free}
    return out


def within(name: str) -> Iterator[str]:
    """The folders within a folder, each before those within it."""
    for each in _importers_first(children(name)):
        if children(each):
            yield each
            yield from within(each)


def subfolders() -> list[str]:
    """All folders within folders, in an order in which imports go forward."""
    return [each for name in order() for each in within(name)]


def sentence(name: str) -> str:
    """The first paragraph of the folder's docstring, which is one sentence."""
    place = (ROOT / "src" / "graphmill").joinpath(*name.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    if not first.endswith(".") or re.search(r"[.!?] [A-Z`]", first):
        raise SystemExit(f"{file}: its docstring begins with one sentence that says what may live there")
    return first.replace("``", "`").replace(":mod:", "")


def path_of(name: str) -> str:
    """``evaluation.health`` as ``evaluation/health``."""
    return name.replace(".", "/")


def picture(names: list[str], imported: dict[str, set[str]]) -> str:
    """A matrix as SVG: a dot where the row's folder imports the column's. Without a circle all lie right of the diagonal."""
    size, letters = CELL * len(names), max(len(name) for name in names)
    left, top = 20 + LETTER * letters, 20 + 6 * letters
    slant = 10 + 4 * len(names[-1])  # the last name leans over the right edge
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + size + slant} {top + size + 10}" '
        'font-family="system-ui,sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for at, name in enumerate(names):
        x, y = left + at * CELL, top + at * CELL
        if at % 2 == 0:
            parts.append(f'<rect x="{left}" y="{y}" width="{size}" height="{CELL}" fill="#f3f6f7"/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="#c9d5da"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(path_of(name))}</text>')
        parts.append(f'<text transform="translate({x + 15} {top - 8}) rotate(-60)">{escape(path_of(name))}</text>')
    for row, name in enumerate(names):
        for column, other in enumerate(names):
            if other in imported[name]:
                cx, cy = left + column * CELL + CELL // 2, top + row * CELL + CELL // 2
                colour = "#0072b2" if column > row else "#d55e00"
                parts.append(f'<circle cx="{cx}" cy="{cy}" r="5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _list(names: list[str]) -> list[str]:
    lines = []
    for name in names:
        kind = "/" if children(name) or (ROOT / "src" / "graphmill" / name).is_dir() else ".py"
        lines.append(f"- `{path_of(name)}{kind}`: {sentence(name)}")
    return lines


def page(names: list[str], inner: list[str]) -> str:
    """The page. Folders within folders need their sentence as well, which is only in the code."""
    for name in inner:
        sentence(name)
    lines = [
        "# Folders and imports",
        "",
        "Written by `make pages`; do not edit. What may live in each folder of `src/graphmill/`. In the pictures a dot says",
        "that the folder of the row imports that of the column. All dots lie right of the diagonal, so nothing goes round",
        "in a circle: `lint-imports` and `tests/test_structure.py` hold that.",
        "",
        "![Which folder imports which](../images/folders.svg)",
        "",
        *_list(names),
        "",
        "## Folders within folders",
        "",
        "The docstring of each `__init__.py` says what may live there.",
        "",
        "![Which folder within a folder imports which](../images/subfolders.svg)",
    ]
    return "\n".join([*lines, ""])


def written() -> dict[Path, str]:
    """The files and what is to stand in them."""
    names, inner = order(), subfolders()
    return {
        PAGE: page(names, inner),
        IMAGES / "folders.svg": picture(names, imports(names)),
        IMAGES / "subfolders.svg": picture(inner, imports(inner)),
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
