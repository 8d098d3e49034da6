"""``docs/reference/http_api.md`` from the endpoints: ``python .ci/http_api_page.py``, which ``make pages`` runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from graphmill.serving.endpoints import ENDPOINTS, MOST_ROWS, Parameter

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "http_api.md"
MANY = 3
"""A parameter of so many addresses is explained once on the page."""

ANSWERS = {
    "vector": (
        "The vector of a node.",
        "`node` (Node), `dimensions`, `vector`",
    ),
    "neighbors": (
        "The nodes whose vectors have the highest cosine with the node's, nearest first.",
        "`node` (Node), `neighbors` (list of Neighbor), `next`",
    ),
    "edges": (
        "The training edges of a node, to nodes with few edges first. `forward`: the edge begins at the node.",
        "`node` (Node), `edges`, `next`",
    ),
    "links": (
        "Predicted links that begin at a node: the k likeliest targets in each relation, or in one relation. "
        "Links that the model was trained on are left out. Compare scores only within a relation. `from` says "
        "where a link comes from. `table`: the run predicted it before it was promoted (the asset `_links`, or "
        "`graphmill links RUN`). The table has median ranks, calibrated probabilities and, for the best links, "
        "the edges that explain them. `scores`: the link was scored for this answer, because the table lacks "
        "this head or has too few of its links; by a system without vectors only while the version's run is on "
        "this machine.",
        "`node` (Node), `links` (list of Link), `next`",
    ),
    "explain": (
        "Why a link is predicted. If the version's run and its graph are on this machine, the explanation is "
        "computed and `from` is `run`: the edges and paths that contribute to the score, with their shares, "
        "and of edges the weight, confidence, time (seconds since 1970) and evidence that the data give; for "
        "ConvE the training triples by influence (TracIn), which takes as long as `graphmill explain`. "
        "Otherwise `from` is `table`: if the table of predicted links explains this link, the answer has the "
        "edges in `because`; `why_not` says why nothing was computed.",
        "`node` (Node), `relation`, `target` (Node), `from`, `score`, `edges` (list of Edge), `paths`, "
        "`parts`, `because`, `why_not`",
    ),
    "recommendations": (
        "The best new items of a user. `promote.recommendations` sets how many a version holds.",
        "`node` (Node), `recommendations` (list of Recommendation), `next`",
    ),
    "search": (
        "Nodes whose name or id contains a text; upper and lower case are equal. Exact matches come first, "
        "then names and ids that begin with the text.",
        "`nodes` (list of Node)",
    ),
    "report": (
        "The report of the run when it was promoted: its verdict and metrics in `about`, and in `html` the "
        "page of `graphmill report` with figures, losses, health, ranking and drift.",
        "`about`, `html`",
    ),
}
"""Endpoint → what its answer is, and its fields besides the version's name."""
SHAPES = {
    "Node": "`id`, `name`, `type`",
    "Neighbor": "`id`, `name`, `type`, `cosine`",
    "Path": "`steps`",
    "Link": (
        "`relation`, `id`, `name`, `type`, `score`, `known`, `from`, `rank`, `median_rank`, "
        "`relative_rank`, `probability`, `because`, `paths` (list of Path)"
    ),
    "Edge": "`head`, `relation`, `tail`, `share`, `weight`, `confidence`, `time`, `evidence`",
    "Recommendation": "`rank`, `id`, `name`, `score`",
    "Error": "`error`",
}
"""The fields of what answers contain."""


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
        about, fields = ANSWERS[each.name]
        lines += [f"## {each.name}", "", f"`GET /v1/{{dataset}}/{{model}}/{{version}}/{each.name}`", "", about, ""]
        if each.parameters:
            names = ", ".join(f"`{p.name}`" for p in each.parameters)
            lines += [f"Parameters: {names}.", "", *(_line(p) for p in each.parameters if p not in shared)]
            lines += [""] if any(p not in shared for p in each.parameters) else []
        lines += [f"The answer has the fields `dataset`, `model`, `version`, {fields}.", ""]
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
