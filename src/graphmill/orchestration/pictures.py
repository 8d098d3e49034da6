"""Pictures and reports of run directories over HTTP, read-only: what asset pages show and link to while ``make ui`` runs.

Only PNG files and ``report.html`` below the project's output folder are served, by their path relative to the project;
pictures scaled down where ``?width=`` asks for it.

``python -m graphmill.orchestration.pictures --port N`` serves them; it binds to 127.0.0.1.
"""

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from graphmill.orchestration.home import OUTPUTS, project_root
from graphmill.runs.report_html import REPORT

WIDEST = 4000
KEPT_SECONDS = 60
_NO_SCRIPTS = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def application(root: Path) -> Starlette:
    """Serves ``/<path relative to root>``; 404 for everything that is no PNG and no report below the outputs."""
    outputs = (root / OUTPUTS).resolve()

    def picture(request: Request) -> Response:
        try:
            file = (root / request.path_params["path"]).resolve()
            wanted = file.suffix == ".png" or file.name == REPORT
            if not wanted or not file.is_relative_to(outputs) or not file.is_file():
                return Response("no such picture", 404)
            data = file.read_bytes()
        except (OSError, ValueError):
            return Response("no such picture", 404)
        if file.name == REPORT:
            return Response(data, media_type="text/html", headers={"content-security-policy": _NO_SCRIPTS})
        width = request.query_params.get("width", "")
        if width.isdigit() and 0 < int(width) <= WIDEST:
            data = scaled(data, int(width))
        return Response(data, media_type="image/png", headers={"cache-control": f"max-age={KEPT_SECONDS}"})

    return Starlette(routes=[Route("/{path:path}", picture)])


def scaled(png: bytes, width: int) -> bytes:
    """The picture at most ``width`` pixels wide."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if image.width <= width:
            return png
        small = image.convert("RGB").resize((width, max(1, round(image.height * width / image.width))))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m graphmill.orchestration.pictures", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    uvicorn.run(application(project_root()), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
