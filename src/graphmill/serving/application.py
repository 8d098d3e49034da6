"""The service: routes over promoted versions, the explorer's page, and the reports of runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from graphmill.errors import GraphmillError
from graphmill.serving.answers import RequestError, json_answer, problem_answer
from graphmill.serving.catalogue import Catalogue
from graphmill.serving.endpoints import ENDPOINTS, Endpoint, read_query
from graphmill.serving.guard import PAGE, Guard
from graphmill.serving.runs import finished_runs, report_page

log = logging.getLogger("graphmill.serving")


def application(promoted: Path, token: str = "", local: bool = True) -> Starlette:
    """Make the application that serves the versions under ``promoted`` (``…/data/07_promoted``) and the reports of the
    runs beside it (``06_models``).

    ``token``: required in every request, "" for none. ``local``: the service is bound to this machine only.
    """
    catalogue = Catalogue(promoted)
    catalogue.problems()  # reads the live versions and verifies the others before the first request
    page = {path: (files("graphmill.serving") / "page" / name).read_bytes() for path, (name, _) in PAGE.items()}

    def show(request: Request) -> Response:
        path = request.url.path
        return Response(page[path], media_type=PAGE[path][1], headers={"cache-control": "no-cache"})

    def models(request: Request) -> Response:
        read_query((), request.query_params.multi_items())
        return json_answer({"models": catalogue.models()})

    def runs(request: Request) -> Response:
        read_query((), request.query_params.multi_items())
        return json_answer({"runs": finished_runs(catalogue.folder.parent.parent)})

    def versions(request: Request) -> Response:
        read_query((), request.query_params.multi_items())
        at = request.path_params
        return json_answer({**at, "versions": catalogue.versions(at["dataset"], at["model"])})

    def health(request: Request) -> Response:
        problems = catalogue.problems()
        return json_answer({"status": "degraded" if problems else "ok", "problems": sorted(problems)})

    def run_report(request: Request) -> Response:
        return report_page(catalogue.folder.parent.parent, request.path_params["path"])

    routes = [
        *(Route(path, show) for path in PAGE),
        Route("/healthz", health),
        Route("/v1", models),
        Route("/v1/runs", runs),
        Route("/v1/{dataset}/{model}", versions),
        *(
            Route(f"/v1/{{dataset}}/{{model}}/{{version}}/{each.name}", _answering(catalogue, each))
            for each in ENDPOINTS
        ),
        Route("/reports/{path:path}", run_report),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, local=local)],
        exception_handlers={RequestError: _problem, GraphmillError: _mistake, HTTPException: _http, Exception: _defect},
    )


def _answering(catalogue: Catalogue, endpoint: Endpoint) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        at = request.path_params
        requested = read_query(endpoint.parameters, request.query_params.multi_items())
        opened = catalogue.get(at["dataset"], at["model"], at["version"])
        result = endpoint.answer(opened, requested)
        return json_answer({"dataset": at["dataset"], "model": at["model"], "version": opened.name, **result})

    return answer


def _problem(request: Request, error: Any) -> Response:
    return problem_answer(error.status, str(error))


def _mistake(request: Request, error: Exception) -> Response:
    return problem_answer(503, str(error))


def _http(request: Request, error: Any) -> Response:
    if error.status_code == 404:
        return problem_answer(404, "there is nothing at this address; /v1 lists the models")
    return problem_answer(error.status_code, str(error.detail))


def _defect(request: Request, error: Exception) -> Response:
    log.error("%s failed", request.url.path, exc_info=error)
    return problem_answer(500, "the service failed on this request; its log has the traceback")
