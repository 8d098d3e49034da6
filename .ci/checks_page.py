"""The tables of ``docs/reference/checks.md`` from the checks: ``python .ci/checks_page.py``, which ``make pages`` runs.

The page's own text stays; a table stands between ``<!-- NAME: written from the code -->`` and ``<!-- end of NAME -->``.
"""

import re
from pathlib import Path

from graphmill.evaluation.health.checks import CHECKS

TABLES = {
    "figures": [
        "| figure | meaning | bound (setting, default) | if it fails |",
        "|---|---|---|---|",
        *(check.line() for check in CHECKS),
    ],
}


def with_tables(page: str) -> str:
    """The page with every table as the code has it now."""
    for name, lines in TABLES.items():
        begin, end = f"<!-- {name}: written from the code -->", f"<!-- end of {name} -->"
        table = "\n".join([begin, "", *lines, "", end])
        page, replaced = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: table, page, flags=re.DOTALL)  # noqa: B023
        if replaced != 1:
            raise ValueError(f"the page has {replaced} places for the table of {name}, not one")
    return page


if __name__ == "__main__":
    path = Path(__file__).resolve().parents[1] / "docs" / "reference" / "checks.md"
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
