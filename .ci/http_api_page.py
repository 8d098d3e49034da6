"""``docs/reference/http_api.md`` from the endpoints: ``python .ci/http_api_page.py``, which ``make pages`` runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from graphmill.serving.endpoints import ENDPOINTS
from graphmill.serving.openapi import ERRORS, OTHERS, SCHEMAS, path_of
from graphmill.serving.parameters import MOST_ROWS, Parameter

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http_api.md"
MANY = 3
"""A parameter of so many addresses is explained once on the page."""


def markdown() -> str:
    """The reference page of the documentation."""
    lines = [
        "# The HTTP API",
        "",
        "[`graphmill serve`](../how-to/serve.md) answers these addresses. `GET /openapi.json` describes them for programs.",
        "All answers are read-only JSON. `{version}` is the name of a version, or `current` for the live one. Every answer",
        f"names the version that it comes from. An answer has at most {MOST_ROWS:,} rows. `next` is the `offset` of the",
        "next page; it is null on the last page.",
        "",
        "| address | answer |",
        "|---|---|",
        *(f"| `GET {path}` | {about} |" for path, about in OTHERS.items()),
        "| `GET /reports/{path}` | The `report.html` of a run directory; Dagster's asset pages link to it. |",
        "",
    ]
    uses = Counter(p for each in ENDPOINTS for p in each.parameters)
    shared = [p for p, count in uses.items() if count >= MANY]
    lines += ["Parameters of several addresses:", "", *map(_line, shared), ""]
    for each in ENDPOINTS:
        lines += [f"## {each.name}", "", f"`GET {path_of(each)}`", "", each.about, ""]
        if each.parameters:
            names = ", ".join(f"`{p.name}`" for p in each.parameters)
            lines += [f"Parameters: {names}.", "", *(_line(p) for p in each.parameters if p not in shared)]
            lines += [""] if any(p not in shared for p in each.parameters) else []
        fields = ", ".join(f"`{name}`{_shape(schema)}" for name, schema in each.gives.items())
        lines += [f"The answer has the fields `dataset`, `model`, `version`, {fields}.", ""]
    lines += ["## Shapes", "", "| name | fields |", "|---|---|"]
    lines += [f"| {name} | {', '.join(f'`{n}`{_shape(s)}' for n, s in one.items())} |" for name, one in SCHEMAS.items()]
    lines += [
        "",
        "## Errors",
        "",
        'An error is `{"error": "one sentence"}` with one of these statuses.',
        "",
        "| status | when |",
    ]
    lines += ["|---|---|", *(f"| {status} | {why} |" for status, why in ERRORS.items())]
    lines += [
        "| 405 | The method is neither GET nor HEAD. |",
        "| 414 | The address is longer than 4,096 characters. |",
        "| 421 | The service listens only on this machine, but the request names another host. |",
    ]
    return "\n".join(lines) + "\n"


def _line(parameter: Parameter) -> str:
    return f"- `{parameter.name}` ({_values(parameter)}): {parameter.about.rstrip('.')}."


def _values(parameter: Parameter) -> str:
    if parameter.kind == "number":
        return f"{parameter.low:,} to {parameter.high:,}; {parameter.default}"
    if parameter.kind == "flag":
        return f"true or false; {str(parameter.default).lower()}"
    return f"{' or '.join(parameter.values)}; {parameter.default}" if parameter.values else "text"


def _shape(schema: dict[str, Any]) -> str:
    items = schema.get("items") or {}
    if "$ref" in items:
        return f" (list of {items['$ref'].rpartition('/')[2]})"
    return f" ({schema['$ref'].rpartition('/')[2]})" if "$ref" in schema else ""


if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")
