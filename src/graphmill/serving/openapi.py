"""The service's description in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from graphmill.serving.endpoints import ENDPOINTS, NUMBER, TEXT, Endpoint
from graphmill.serving.parameters import Parameter
from graphmill.version import __version__

_NODE = {"id": TEXT, "name": TEXT, "type": TEXT}
_STEP = {"relation": TEXT, "forward": {"type": "boolean"}, **_NODE}
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
    "Edge": {
        **{"head": TEXT, "relation": TEXT, "tail": TEXT, "share": NUMBER},
        **{"weight": NUMBER, "confidence": NUMBER, "time": {"type": "integer"}, "evidence": TEXT},
    },
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
