"""The endpoints of a version: one function each, with its entry in the OpenAPI description."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphmill.reports.card import CARD
from graphmill.reports.report_html import REPORT, STYLE
from graphmill.serving.link_explanation import explain
from graphmill.serving.open_version import OpenVersion
from graphmill.serving.parameters import NODE, Parameter, page
from graphmill.serving.problem import RequestError
from graphmill.serving.projection import MOST_POINTS, projection

Answer = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """``GET /v1/{dataset}/{model}/{version}/<name>``. ``gives``: JSON schemas of the fields besides the version's name."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[OpenVersion, dict[str, Any]], Answer]
    gives: dict[str, Any]


def _vector(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    vector = opened.vector(row)
    return {"node": opened.node(row), "dimensions": len(vector), "vector": [float(value) for value in vector]}


def _neighbors(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    result = opened.neighbors(row, query["offset"] + query["k"] + 1, query["among"])
    return {"node": opened.node(row), **_paged("neighbors", result, query)}


def _links(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    if query["offset"] and not query["relation"]:
        raise RequestError(400, "offset needs one relation: give it with relation=…")
    wanted = query["offset"] + query["k"] + (1 if query["relation"] else 0)
    result = opened.links(row, query["relation"], wanted, query["known"])
    paged = _paged("links", result, query) if query["relation"] else {"links": result, "next": None}
    links = [{**link, "paths": opened.paths(row, link, query["paths"])} for link in paged["links"] or ()]
    return {"node": opened.node(row), **paged, "links": links}


def _edges(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    return {"node": opened.node(row), **_paged("edges", opened.known_edges(row), query)}


def _explain(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    if not query["relation"]:
        raise RequestError(400, "give the relation: relation=…")
    row = opened.find(query["id"], query["name"], query["type"])
    if not query["target"]:
        raise RequestError(400, "give the id of the link's target node: target=…")
    target = opened.find(query["target"], "", query["target_type"])
    return {"node": opened.node(row), **explain(opened, row, query["relation"], target, query["edges"])}


def _recommendations(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    row = opened.find(query["id"], query["name"], query["type"])
    return {"node": opened.node(row), **_paged("recommendations", opened.recommendations(row), query)}


def _search(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    return {"nodes": opened.search(query["q"], query["type"], query["k"])}


def _card(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    if CARD not in opened.files:
        raise RequestError(404, f"{opened.name} has no {CARD}: promote its run again")
    return {"markdown": opened.files[CARD].decode("utf-8", "replace")}


def _report(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    about = opened.version.about
    names = (
        "system",
        "made",
        "rows",
        "dim",
        "epoch",
        "selection_metric",
        "metrics",
        "graph",
        "software",
        "run_dir",
        "verdict",
    )
    page = opened.files.get(REPORT)
    # The page of the service allows the style sheet of this release, and no other.
    style = re.compile("<style>.*?</style>", re.DOTALL)
    return {
        "about": {name: about.get(name) for name in names} | {"answers": opened.answers},
        "html": None if page is None else style.sub(f"<style>{STYLE}</style>", page.decode("utf-8", "replace"), 1),
    }


def _projection(opened: OpenVersion, query: dict[str, Any]) -> Answer:
    around = opened.find(query["id"], query["name"], query["type"]) if query["id"] or query["name"] else -1
    return projection(opened, query["points"], around, query["k"])


def _paged(name: str, result: list[Any], query: dict[str, Any]) -> Answer:
    start, stop = query["offset"], query["offset"] + query["k"]
    return {name: result[start:stop], "next": stop if len(result) > stop else None}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
_NODE = {"$ref": "#/components/schemas/Node"}
_NEXT = {"type": ["integer", "null"], "description": "`offset` of the next page; null on the last page"}


def _rows(of: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{of}"}}


ENDPOINTS = (
    Endpoint(
        "vector",
        "The vector of a node.",
        NODE,
        _vector,
        {"node": _NODE, "dimensions": {"type": "integer"}, "vector": {"type": "array", "items": NUMBER}},
    ),
    Endpoint(
        "neighbors",
        "The nodes whose vectors have the highest cosine with the node's, nearest first.",
        (*NODE, *page(), Parameter("among", "Only neighbours of this type")),
        _neighbors,
        {"node": _NODE, "neighbors": _rows("Neighbor"), "next": _NEXT},
    ),
    Endpoint(
        "edges",
        "The training edges of a node, to nodes with few edges first. `forward`: the edge begins at the node.",
        (*NODE, *page()),
        _edges,
        {"node": _NODE, "edges": {"type": "array", "items": {"type": "object"}}, "next": _NEXT},
    ),
    Endpoint(
        "links",
        "Predicted links that begin at a node: the k likeliest targets in each relation, or in one relation. Links that the "
        "model was trained on are left out. Compare scores only within a relation. `from` says where a link comes from. "
        "`table`: the run predicted it before it was promoted (the asset `_links`, or `graphmill links RUN`). The table has "
        "median ranks, calibrated probabilities and, for the best links, the edges that explain them. `scores`: the link "
        "was scored for this answer, because the table lacks this head or has too few of its links; by a system without "
        "vectors only while the version's run is on this machine.",
        (
            *NODE,
            Parameter(
                "relation",
                "A relation's name, or source|name|target. Without it, every relation that begins at the node",
            ),
            *page(),
            Parameter("known", "Include links that the model was trained on", "flag", False),
            Parameter(
                "paths", "Maximum number of supporting paths (of length 2 or 3) for each link", "number", 3, 0, 10
            ),
        ),
        _links,
        {"node": _NODE, "links": _rows("Link"), "next": _NEXT},
    ),
    Endpoint(
        "explain",
        "Why a link is predicted. If the version's run and its graph are on this machine, the explanation is computed and "
        "`from` is `run`: the edges and paths that contribute to the score, with their shares, and of edges the weight, "
        "confidence, time (seconds since 1970) and evidence that the data give; for ConvE the training triples by "
        "influence (TracIn), which takes as long as `graphmill explain`. Otherwise `from` "
        "is `table`: if the table of predicted links explains this link, the answer has the edges in `because`; `why_not` "
        "says why nothing was computed.",
        (
            *NODE,
            Parameter("relation", "A relation's name, or source|name|target"),
            Parameter("target", "The id of the node that the link leads to"),
            Parameter("target_type", "The type of that node. Needed only if nodes of several types have this id"),
            Parameter("edges", "Maximum number of edges in the answer", "number", 10, 1, 100),
        ),
        _explain,
        {
            "node": _NODE,
            "relation": TEXT,
            "target": _NODE,
            "from": {"enum": ["run", "table"]},
            "score": {"type": ["number", "null"]},
            "edges": _rows("Edge"),
            "paths": {"type": "array", "items": {"type": "object"}},
            "parts": {"type": "object"},
            "because": {"type": "array", "items": TEXT},
            "why_not": TEXT,
        },
    ),
    Endpoint(
        "recommendations",
        "The best new items of a user. `promote.recommendations` sets how many a version holds.",
        (*NODE, *page(20)),
        _recommendations,
        {"node": _NODE, "recommendations": _rows("Recommendation"), "next": _NEXT},
    ),
    Endpoint(
        "search",
        "Nodes whose name or id contains a text; upper and lower case are equal. Exact matches come first, then names "
        "and ids that begin with the text.",
        (
            Parameter("q", "The text to look for"),
            Parameter("type", "Only nodes of this type"),
            Parameter("k", "Maximum number of nodes in the answer", "number", 10, 1, 100),
        ),
        _search,
        {"nodes": _rows("Node")},
    ),
    Endpoint(
        "card",
        "The version's card as Markdown: its data, counts, settings, figures, and how it was made.",
        (),
        _card,
        {"markdown": TEXT},
    ),
    Endpoint(
        "report",
        "The report of the run when it was promoted: its verdict and metrics in `about`, and in `html` the page of "
        "`graphmill report` with figures, losses, health, ranking and drift.",
        (),
        _report,
        {"about": {"type": "object"}, "html": {"type": ["string", "null"]}},
    ),
    Endpoint(
        "projection",
        "The vectors in two dimensions. The nodes are a random sample of every type; if id or name is given, they are that "
        "node and its k nearest.",
        (
            *NODE,
            Parameter("k", "How many neighbours to show, if a node is given", "number", 10, 1, 100),
            Parameter("points", "Maximum number of nodes in the answer", "number", 3000, 10, MOST_POINTS),
        ),
        _projection,
        {
            "explained": {"type": "array", "items": NUMBER},
            "types": {"type": "array", "items": TEXT},
            "total": {"type": "integer"},
            "points": {
                "type": "object",
                "description": "Lists of equal length: id, name, type (an index into types), x, y",
            },
        },
    ),
)
