"""The service's description in OpenAPI 3.1, and as a page of Markdown: ``python -m graphmill.serving.openapi``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphmill.serving.endpoints import ENDPOINTS, NUMBER, TEXT, Endpoint
from graphmill.serving.parameters import MOST_ROWS, Parameter
from graphmill.version import __version__

_NODE = {"id": TEXT, "name": TEXT, "type": TEXT}
_STEP = {"relation": TEXT, "forward": {"type": "boolean"}, **_NODE}
MANY = 3
"""A parameter of so many addresses is explained once on the page."""
SCHEMAS: dict[str, dict[str, Any]] = {
    "Node": _NODE,
    "Neighbor": {**_NODE, "cosine": NUMBER},
    "Path": {"steps": {"type": "array", "items": {"type": "object", "properties": _STEP}}},
    "Link": {
        "relation": TEXT,
        **_NODE,
        "score": NUMBER,
        "known": {"type": "boolean"},
        "from": {"enum": ["table", "scores"]},
        "rank": {"type": "integer"},
        **{name: {"type": ["number", "null"]} for name in ("median_rank", "relative_rank", "probability")},
        "because": {"type": "array", "items": TEXT},
        "paths": {"type": "array", "items": {"$ref": "#/components/schemas/Path"}},
    },
    "Edge": {"head": TEXT, "relation": TEXT, "tail": TEXT, "share": NUMBER},
    "Recommendation": {"rank": {"type": "integer"}, "id": TEXT, "name": TEXT, "score": NUMBER},
    "Error": {"error": {"type": "string", "description": "One sentence that says what is wrong and what to do"}},
}
ERRORS = {
    400: "A parameter is unknown, missing or out of bounds.",
    401: "The token is missing or wrong.",
    404: "There is no such dataset, model, version, node or relation, or this version cannot give such an answer.",
    409: "Several nodes have this id or name.",
    503: "The version cannot be read, or too many requests arrive at once.",
}
OTHERS = {
    "/v1": "Every model, with its live version and the number of its versions.",
    "/v1/{dataset}/{model}": "The versions of a model, newest first: figures, and when, why and by whom each went live.",
    "/healthz": "Whether the service is up. `degraded` lists the models whose live version cannot be read.",
}


def description() -> dict[str, Any]:
    """OpenAPI 3.1 as plain values."""
    paths: dict[str, Any] = {path: {"get": _operation(path, about)} for path, about in OTHERS.items()}
    for each in ENDPOINTS:
        paths[path_of(each)] = {"get": _operation(each.name, each.about, each)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "graphmill serve",
            "version": __version__,
            "description": "Read-only answers from promoted versions. Every answer names the version that it comes from.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: {"type": "object", "properties": one} for name, one in SCHEMAS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def path_of(endpoint: Endpoint) -> str:
    """The endpoint's path, with named parts."""
    return f"/v1/{{dataset}}/{{model}}/{{version}}/{endpoint.name}"


def _operation(name: str, about: str, endpoint: Endpoint | None = None) -> dict[str, Any]:
    path = path_of(endpoint) if endpoint else name
    inside = [part for part in ("dataset", "model", "version") if f"{{{part}}}" in path]
    in_path = [{"name": part, "in": "path", "required": True, "schema": TEXT} for part in inside]
    query = [_query(each) for each in endpoint.parameters] if endpoint else []
    common = dict.fromkeys(inside, TEXT)
    shape = {"type": "object", "properties": common | (endpoint.gives if endpoint else {})}
    answers = {"200": {"description": "The answer", "content": {"application/json": {"schema": shape}}}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answers |= {str(status): {"description": why, "content": error} for status, why in ERRORS.items()}
    return {
        "operationId": name.strip("/") or "root",
        "summary": about,
        "parameters": in_path + query,
        "responses": answers,
    }


def _query(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": parameter.schema()}


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
    print(markdown(), end="")
