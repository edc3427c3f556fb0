"""Files of the dashboard: served safely, compressed or not, at every address of a page."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from rota.api.static_pages import BUILT, UI_PATH, StaticPage, load_pages
from tests.api.in_process_server import InProcessServer

BARE = {"Authorization": ""}
"""Pages need no token; what they show comes from operations that do."""
FRONT = '<!doctype html><script type="module" src="/static/index-abcd1234.js"></script>'
SCRIPT = "export const answer = 42;\n" * 100


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Writes what a build writes, as far as the server needs it."""
    (tmp_path / "index.html").write_text(FRONT)
    (tmp_path / "index-abcd1234.js").write_text(SCRIPT)
    (tmp_path / "sources.sha256").write_text("not for browsers")
    return tmp_path


def by_path(pages: list[StaticPage]) -> dict[str, StaticPage]:
    return {page.path: page for page in pages}


def test_the_built_page_is_served_at_the_root_and_at_every_address_of_a_page(built: Path) -> None:
    pages = by_path(load_pages(built))
    assert pages["/"].content == pages[UI_PATH].content == FRONT.encode()
    assert "/static/sources.sha256" not in pages
    assert "/static/index.html" not in pages


def test_a_clone_without_a_build_shows_how_to_build(tmp_path: Path) -> None:
    pages = by_path(load_pages(tmp_path / "nothing"))
    assert b"make dashboard" in pages["/"].content
    assert "/static/docs.js" in pages


def test_files_with_a_hash_in_their_name_are_kept_by_browsers_and_others_are_not(
    built: Path,
) -> None:
    pages = by_path(load_pages(built))
    assert "immutable" in pages["/static/index-abcd1234.js"].cache
    assert pages["/"].cache == pages["/static/docs.js"].cache == "no-cache"


def test_compressed_content_is_the_same_bytes_every_time(built: Path) -> None:
    one, other = (by_path(load_pages(built))["/static/index-abcd1234.js"] for _ in range(2))
    assert gzip.decompress(one.compressed) == one.content == SCRIPT.encode()
    assert one.compressed == other.compressed
    assert len(one.compressed) < len(one.content)


async def test_every_address_of_a_page_can_be_reloaded(server: InProcessServer) -> None:
    front = (await server.http.get("/", headers=BARE)).text
    for path in ("/ui/jobs", "/ui/jobs/019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3?tab=graph", "/ui/x/y"):
        answer = await server.http.get(path, headers=BARE)
        assert answer.status_code == 200, path
        assert answer.text == front
        assert answer.headers["content-type"].startswith("text/html")
    assert (await server.http.get("/jobs")).headers["content-type"] == "application/json"
    assert (await server.http.get("/uix")).status_code == 404


async def test_a_cached_page_is_answered_with_304(server: InProcessServer) -> None:
    first = await server.http.get("/", headers=BARE)
    again = await server.http.get("/", headers={**BARE, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "default-src 'self'" in again.headers["content-security-policy"]


async def test_a_compressed_page_is_sent_only_to_clients_that_accept_it(
    server: InProcessServer,
) -> None:
    plain = await server.http.get(
        "/static/docs.js", headers={**BARE, "Accept-Encoding": "identity"}
    )
    packed = await server.http.get("/static/docs.js", headers={**BARE, "Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.text == plain.text
    head = await server.http.head("/static/docs.js", headers={**BARE, "Accept-Encoding": "gzip"})
    assert head.headers["content-length"] == packed.headers["content-length"]
    assert head.content == b""


async def test_the_pages_have_no_inline_code_and_load_nothing_from_elsewhere(
    server: InProcessServer,
) -> None:
    for path in ("/", "/docs"):
        page = (await server.http.get(path, headers=BARE)).text
        assert "style=" not in page
        assert "onclick" not in page
        assert not re.search(r"<script(?![^>]* src=)", page)
        assert "//" not in page.replace("<!doctype", "")
        for asset in page.split('"'):
            if asset.startswith("/static/"):
                assert (await server.http.get(asset, headers=BARE)).status_code == 200
    assert (await server.http.post("/", headers=BARE)).status_code == 405
    assert (await server.http.post("/ui/jobs", headers=BARE)).status_code == 405


@pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="the dashboard was not built here")
def test_the_first_page_is_small_and_writes_no_markup_of_its_own() -> None:
    pages = [page for page in load_pages() if page.path not in ("/docs", UI_PATH)]
    assert sum(len(page.compressed or page.content) for page in pages) < 300_000
    scripts = b"".join(page.content for page in pages if page.media.startswith("text/javascript"))
    assert b"dangerouslySetInnerHTML:" not in scripts
