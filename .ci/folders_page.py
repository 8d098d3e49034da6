"""Writes ``docs/explanation/folders.md`` and its picture: what each folder of the package is for, and what it imports.

The order is that of the contract "Data moves one way" in ``pyproject.toml``; the sentences are the folders' own docstrings.
Run by ``make pages``; a test holds that both files are current and that the picture shows no circle.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "explanation" / "folders.md", ROOT / "docs" / "images" / "folders.svg"
CELL, LEFT, TOP = 22, 120, 110


def order() -> list[str]:
    """Folders and modules, the uppermost layer first; kernels, which import nothing of the package, last."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in about["contracts"] if each["name"] == "Data moves one way")
    named = [name.strip().removeprefix("graphmill.") for layer in layers for name in layer.split("|")]
    return [*named, "kernels"]


def imports(names: list[str]) -> dict[str, set[str]]:
    """Folder → those that it imports, in functions as well; not what type checkers alone import."""
    graph = grimp.build_graph("graphmill", exclude_type_checking_imports=True, cache_dir=None)
    known = {module.removeprefix("graphmill.") for module in graph.find_children("graphmill")}
    if missing := sorted(known - set(names)):
        raise SystemExit(f"the contract in pyproject.toml has no place for {', '.join(missing)}")
    return {
        a: {
            b
            for b in names
            if a != b
            and graph.direct_import_exists(importer=f"graphmill.{a}", imported=f"graphmill.{b}", as_packages=True)
        }
        for a in names
    }


def sentence(name: str) -> str:
    """The first paragraph of the folder's docstring."""
    place = ROOT / "src" / "graphmill" / name
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    found = " ".join(text.split("\n\n")[0].split())
    if not found.endswith("."):
        raise SystemExit(f"{file}: its docstring begins with a sentence that says what may live there")
    return found.replace("``", "`").replace(":mod:", "")


def picture(names: list[str], found: dict[str, set[str]]) -> str:
    """A matrix as SVG: a dot where the row's folder imports the column's. Without a circle all lie right of the diagonal."""
    size = CELL * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + size + 10} {TOP + size + 10}" '
        'font-family="system-ui,sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for at, name in enumerate(names):
        x, y = LEFT + at * CELL, TOP + at * CELL
        if at % 2 == 0:
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{size}" height="{CELL}" fill="#f3f6f7"/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="#c9d5da"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<text transform="translate({x + 15} {TOP - 8}) rotate(-60)">{escape(name)}</text>')
    for row, name in enumerate(names):
        for column, other in enumerate(names):
            if other in found[name]:
                cx, cy = LEFT + column * CELL + CELL // 2, TOP + row * CELL + CELL // 2
                colour = "#0072b2" if column > row else "#d55e00"
                parts.append(f'<circle cx="{cx}" cy="{cy}" r="5" fill="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def page(names: list[str], found: dict[str, set[str]]) -> str:
    """The page."""
    lines = [
        "# Folders and imports",
        "",
        "Written by `make pages`; do not edit. A dot says that the folder of the row imports that of the column.",
        "All dots lie right of the diagonal, so nothing goes round in a circle. `lint-imports` holds that, and",
        "`tests/test_structure.py` holds it for single modules.",
        "",
        "![Which folder imports which](../images/folders.svg)",
        "",
        "| in `src/graphmill/` | what may live there | imports |",
        "|---|---|---|",
    ]
    for name in names:
        below = ", ".join(other for other in names if other in found[name]) or "nothing of the package"
        kind = "/" if (ROOT / "src" / "graphmill" / name).is_dir() else ".py"
        lines.append(f"| `{name}{kind}` | {sentence(name)} | {below} |")
    return "\n".join([*lines, ""])


def written() -> dict[Path, str]:
    """Both files and what is to stand in them."""
    names = order()
    found = imports(names)
    return {PAGE: page(names, found), PICTURE: picture(names, found)}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
