"""``docs/reference/http_api.md`` from the endpoints: ``python .ci/http_api_page.py``, which ``make pages`` runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from graphmill.serving.endpoints import ENDPOINTS, MOST_ROWS, SHAPES, Parameter

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http_api.md"
MANY = 3
"""A parameter of so many addresses is explained once on the page."""


def markdown() -> str:
    """The reference page of the documentation."""
    lines = [
        "# The HTTP API",
        "",
        "[`graphmill serve`](../how-to/serve.md) answers these addresses.",
        "All answers are read-only JSON. `{version}` is the name of a version, or `current` for the live one. Every answer",
        f"names the version that it comes from. An answer has at most {MOST_ROWS:,} rows. `next` is the `offset` of the",
        "next page; it is null on the last page.",
        "",
        "| address | answer |",
        "|---|---|",
        "| `GET /v1` | Every model, with its live version and the number of its versions. |",
        "| `GET /v1/{dataset}/{model}` | The versions of a model, newest first: figures, and when, why and by whom each "
        "went live. |",
        "| `GET /healthz` | Whether the service is up. `degraded` lists the models whose live version cannot be read. |",
        "| `GET /reports/{path}` | The `report.html` of a run directory; Dagster's asset pages link to it. |",
        "",
    ]
    uses = Counter(p for each in ENDPOINTS for p in each.parameters)
    shared = [p for p, count in uses.items() if count >= MANY]
    lines += ["Parameters of several addresses:", "", *map(_line, shared), ""]
    for each in ENDPOINTS:
        lines += [f"## {each.name}", "", f"`GET /v1/{{dataset}}/{{model}}/{{version}}/{each.name}`", "", each.about, ""]
        if each.parameters:
            names = ", ".join(f"`{p.name}`" for p in each.parameters)
            lines += [f"Parameters: {names}.", "", *(_line(p) for p in each.parameters if p not in shared)]
            lines += [""] if any(p not in shared for p in each.parameters) else []
        lines += [f"The answer has the fields `dataset`, `model`, `version`, {each.gives}.", ""]
    lines += ["## Shapes", "", "| name | fields |", "|---|---|"]
    lines += [f"| {name} | {fields} |" for name, fields in SHAPES.items()]
    lines += [
        "",
        "## Errors",
        "",
        'An error is `{"error": "one sentence"}` with one of these statuses.',
        "",
        "| status | when |",
    ]
    lines += [
        "|---|---|",
        "| 400 | A parameter is unknown, missing or out of bounds. |",
        "| 401 | The token is missing or wrong. |",
        "| 404 | There is no such dataset, model, version, node or relation, or this version cannot give such an answer. |",
        "| 409 | Several nodes have this id or name. |",
        "| 503 | The version cannot be read, or too many requests arrive at once. |",
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
    return "text"


if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")
