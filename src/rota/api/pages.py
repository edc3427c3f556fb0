"""The pages for browsers: small, self-hosted, read once at start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from rota.api.bodies import header
from rota.api.parts import Parts
from rota.api.problems import ProblemError, respond
from rota.api.sessions import open_session, session_cookie

_FOLDER = Path(__file__).parent / "static"
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PATHS = {"index.html": "/", "docs.html": "/docs"}


@dataclass(frozen=True)
class Page:
    """One file and where it is found."""

    path: str
    media: str
    content: bytes


def load_pages() -> list[Page]:
    """All files of the pages."""
    return [
        Page(
            _PATHS.get(file.name, f"/static/{file.name}"),
            _MEDIA[file.suffix],
            file.read_bytes(),
        )
        for file in sorted(_FOLDER.iterdir())
        if file.suffix in _MEDIA
    ]


def document_page(document: bytes) -> Page:
    """The OpenAPI document, served like a file."""
    return Page("/openapi.json", "application/json", document)


class PageServer:
    """Serves one page; the first one also turns a sign-in link into a session."""

    def __init__(self, page: Page, parts: Parts) -> None:
        self._page = page
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET and HEAD only."""
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            detail = f"{self._page.path} takes GET, HEAD"
            return respond(ProblemError(405, "method", detail, headers={"Allow": "GET, HEAD"}))
        if self._page.path == "/" and b"token=" in scope["query_string"]:
            return self._sign_in(scope)
        content = b"" if scope["method"] == "HEAD" else self._page.content
        headers = {"Cache-Control": "no-cache", "Content-Length": str(len(self._page.content))}
        return Response(content, headers=headers, media_type=self._page.media)

    def _sign_in(self, scope: Scope) -> Response:
        """The link works once; the code leaves the address bar, whether it worked or not."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        access = self._parts.access
        token_id = access.codes.redeem(given) if scope["method"] == "GET" else None
        token, now = access.roster.by_id(token_id or ""), self._parts.brain.clock.now()
        if token is None or not token.is_live(now):
            return RedirectResponse("/?signin=expired", 303)
        host = (header(scope, b"host") or b"").decode("latin-1")
        value = open_session(access.roster, token, now)
        cookie = session_cookie(value, host, secure=access.secure_cookies)
        return RedirectResponse("/", 303, headers={"Set-Cookie": cookie})
