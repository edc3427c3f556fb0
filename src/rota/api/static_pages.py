"""Static pages for browsers: the built dashboard and the API documentation.

All files are read once, at start, and served from memory. They are compressed at the first request:
most starts of a server are not for a browser.

Why: docs/decisions/0027-dashboard-with-few-dependencies.md.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from rota.api.auth.sessions import open_session, session_cookie
from rota.api.deps import AppDeps
from rota.api.parsing.request import header
from rota.api.problems import respond
from rota.wire.problems import ProblemError

STATIC = Path(__file__).parent / "static"
BUILT = STATIC / "dashboard"
"""Output of the dashboard's build; missing in a clone that was never built."""
UI_PATH = "/ui/{page:path}"
"""Every page of the dashboard but the first; the browser decides what it shows."""
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PATHS = {"docs.html": "/docs"}
_UNCHANGING = re.compile(r".+-[\w-]{8}\.\w+\Z")
"""Name with a hash of the content, as the build makes them."""
_COMPRESS_BYTES_MIN = 1000


@dataclass(frozen=True)
class StaticPage:
    """Page served from memory, with its path and media type."""

    path: str
    media: str
    make: Callable[[], bytes]
    """Reads the content; called once."""
    cache: str = "no-cache"

    @cached_property
    def content(self) -> bytes:
        return self.make()

    @cached_property
    def compressed(self) -> bytes:
        """Content in gzip; empty where that saves nothing."""
        if len(self.content) < _COMPRESS_BYTES_MIN:
            return b""
        # Without a time in it, equal content gives equal bytes on every server.
        return gzip.compress(self.content, compresslevel=9, mtime=0)

    @cached_property
    def mark(self) -> str:
        """ETag: changes with the content, so that a browser that has it does not load it again."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    def prepare(self) -> tuple[str, bytes]:
        """Computes the ETag and compresses, which takes a while."""
        return self.mark, self.compressed


def load_pages(built: Path = BUILT) -> list[StaticPage]:
    """Loads all pages; where the dashboard was not built, a page that says how to build it."""
    files = [*_files(STATIC), *(_files(built) if built.is_dir() else ())]
    pages = [_load(file) for file in files if file.name not in ("index.html", "not-built.html")]
    front = built / "index.html"
    if not front.is_file():
        front = STATIC / "not-built.html"
    content = front.read_bytes()
    return [
        *pages,
        StaticPage("/", _MEDIA[".html"], lambda: content),
        StaticPage(UI_PATH, _MEDIA[".html"], lambda: content),
    ]


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.iterdir()) if file.suffix in _MEDIA)


def _load(file: Path) -> StaticPage:
    cache = "no-cache"
    if _UNCHANGING.match(file.name):
        cache = "public, max-age=31536000, immutable"
    path = _PATHS.get(file.name, f"/static/{file.name}")
    content = file.read_bytes()
    return StaticPage(path, _MEDIA[file.suffix], lambda: content, cache)


def document_page(make: Callable[[], bytes]) -> StaticPage:
    """Makes a page of the OpenAPI document."""
    return StaticPage("/openapi.json", "application/json", make)


class PageServer:
    """Serves one page; the first one also turns a sign-in link into a session."""

    def __init__(self, page: StaticPage, deps: AppDeps) -> None:
        self._page = page
        self._deps = deps
        self._preparing = asyncio.Lock()
        self._prepared = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers GET and HEAD; the first request prepares the page."""
        if not self._prepared:
            await self._prepare()
        await self._answer(scope)(scope, receive, send)

    async def _prepare(self) -> None:
        # In a thread, because compressing takes up to a tenth of a second; once for all requests.
        async with self._preparing:
            if not self._prepared:
                await asyncio.to_thread(self._page.prepare)
                self._prepared = True

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
        if page.compressed and b"gzip" in (header(scope, b"accept-encoding") or b""):
            content, headers["Content-Encoding"] = page.compressed, "gzip"
        headers["Content-Length"] = str(len(content))
        body = b"" if scope["method"] == "HEAD" else content
        return Response(body, headers=headers, media_type=page.media)

    def _sign_in(self, scope: Scope) -> Response:
        """Signs a browser in; the link works once, and the redirect removes its code from the
        address bar."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        access = self._deps.access
        token_id = access.sign_in_codes.redeem(given) if scope["method"] == "GET" else None
        token, now = access.tokens.by_id(token_id or ""), self._deps.brain.clock.now()
        if token is None or not token.is_live(now):
            return RedirectResponse("/?signin=expired", 303)
        host = (header(scope, b"host") or b"").decode("latin-1")
        value = open_session(access.tokens, token, now)
        cookie = session_cookie(value, host, secure=access.secure_cookies)
        return RedirectResponse("/", 303, headers={"Set-Cookie": cookie})
