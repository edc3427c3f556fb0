"""The pages for browsers: the dashboard as it was built, and the description of the API.

All files are read once, at start, and are served from memory.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from rota.api.bodies import header
from rota.api.parts import Parts
from rota.api.problems import ProblemError, respond
from rota.api.sessions import open_session, session_cookie

STATIC = Path(__file__).parent / "static"
BUILT = STATIC / "dashboard"
"""Where the dashboard's build puts its files; not there in a clone that was never built."""
UI_PATH = "/ui/{page:path}"
"""Every page of the dashboard but the first: what is shown there is the browser's affair."""
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PATHS = {"docs.html": "/docs"}
_UNCHANGING = re.compile(r".+-[\w-]{8}\.\w+\Z")
"""A name with a hash of the content in it, as the build gives them."""
_WORTH_PACKING = 1000


@dataclass(frozen=True)
class Page:
    """One file and where it is found."""

    path: str
    media: str
    content: bytes
    packed: bytes
    """The same for browsers that unpack; empty where that saves nothing."""
    mark: str
    """Changes with the content, so that a browser that has it is not sent it again."""
    cache: str = "no-cache"


def page_of(path: str, media: str, content: bytes, cache: str = "no-cache") -> Page:
    """A page, packed and marked."""
    packed = b""
    if len(content) >= _WORTH_PACKING:
        # Without a time in it, equal content gives equal bytes on every server.
        packed = gzip.compress(content, compresslevel=9, mtime=0)
    mark = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return Page(path, media, content, packed, mark, cache)


def load_pages(built: Path = BUILT) -> list[Page]:
    """All files of the pages; where the dashboard was not built, a page that says how."""
    files = [*_files(STATIC), *(_files(built) if built.is_dir() else ())]
    pages = [_load(file) for file in files if file.name not in ("index.html", "not-built.html")]
    front = built / "index.html"
    if not front.is_file():
        front = STATIC / "not-built.html"
    content = front.read_bytes()
    return [
        *pages,
        page_of("/", _MEDIA[".html"], content),
        page_of(UI_PATH, _MEDIA[".html"], content),
    ]


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.iterdir()) if file.suffix in _MEDIA)


def _load(file: Path) -> Page:
    cache = "no-cache"
    if _UNCHANGING.match(file.name):
        cache = "public, max-age=31536000, immutable"
    path = _PATHS.get(file.name, f"/static/{file.name}")
    return page_of(path, _MEDIA[file.suffix], file.read_bytes(), cache)


def document_page(document: bytes) -> Page:
    """The OpenAPI document, served like a file."""
    return page_of("/openapi.json", "application/json", document)


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
            detail = f"{scope['path']} takes GET, HEAD"
            return respond(ProblemError(405, "method", detail, headers={"Allow": "GET, HEAD"}))
        if self._page.path == "/" and b"token=" in scope["query_string"]:
            return self._sign_in(scope)
        page = self._page
        headers = {"Cache-Control": page.cache, "ETag": page.mark, "Vary": "Accept-Encoding"}
        if (header(scope, b"if-none-match") or b"").decode("latin-1") == page.mark:
            return Response(status_code=304, headers=headers)
        content = page.content
        if page.packed and b"gzip" in (header(scope, b"accept-encoding") or b""):
            content, headers["Content-Encoding"] = page.packed, "gzip"
        headers["Content-Length"] = str(len(content))
        body = b"" if scope["method"] == "HEAD" else content
        return Response(body, headers=headers, media_type=page.media)

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
