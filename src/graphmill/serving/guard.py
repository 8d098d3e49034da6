"""Checks requests (token, host name, method, length of the address) and sets the headers of responses."""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphmill.reports.report_html import STYLE
from graphmill.serving.answers import problem_answer

MOST_ADDRESS = 4096
MOST_AT_ONCE = 200
PAGE = {
    "/": ("index.html", "text/html"),
    "/explorer.js": ("explorer.js", "text/javascript"),
    "/lists.js": ("lists.js", "text/javascript"),
    "/around.js": ("around.js", "text/javascript"),
    "/cytoscape.js": ("vendor/cytoscape.js", "text/javascript"),
    "/explorer.css": ("explorer.css", "text/css"),
}
"""Path → file of the explorer's page and its media type."""
OPEN_PATHS = frozenset({*PAGE, "/healthz"})
"""Addresses that need no token: they contain no data, and a browser cannot send a token for them."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
"""Of the reports' style sheet, the only one that the page may have beside its own file."""
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' '{STYLE_HASH}'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """Passes on only valid requests. ``token`` "": no token is needed. ``local``: only host names of this machine are
    accepted, so that a page of another host whose name resolves to this machine (DNS rebinding) can read nothing.
    """

    def __init__(self, app: ASGIApp, token: str, local: bool) -> None:
        self.app, self.token, self.local, self.active = app, token.encode(), local, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        status, why = self._refused(scope, Headers(scope=scope))
        answer = problem_answer(status, why) if status else self.app
        self.active += 1
        try:
            await answer(scope, receive, with_headers)
        finally:
            self.active -= 1

    def _refused(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        if self.active >= MOST_AT_ONCE:
            return 503, f"{MOST_AT_ONCE} requests are being answered already; ask again in a moment"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, f"{scope['method'][:16]} is not possible: this service is read-only and answers GET"
        length = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
        if length > MOST_ADDRESS:
            return 414, f"the address has {length} characters; at most {MOST_ADDRESS} are read"
        if self.local and _host_name(headers.get("host", "")) not in LOCAL_NAMES:
            return 421, "this service answers under localhost and 127.0.0.1 only; start it with --host for others"
        if self.token and scope["path"] not in OPEN_PATHS:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if not (kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token)):
                return 401, "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'"
        return 0, ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
