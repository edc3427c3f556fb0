"""The routing table: every call of the API has a route at the gateway."""

from __future__ import annotations

from rota.api.endpoints import OPERATIONS
from rota.api.static_pages import load_pages
from rota.gateway.routing import PAGES, ROUTES


def test_every_call_of_the_api_has_a_route_and_every_route_a_call() -> None:
    known = {(operation.method, operation.path) for operation in OPERATIONS}
    ruled = [(route.method, route.path) for route in ROUTES if route not in PAGES]
    assert sorted(ruled) == sorted(known)
    assert len(ruled) == len(set(ruled))


def test_every_page_has_a_route() -> None:
    fixed = [route.path for route in PAGES]
    assert [
        page.path
        for page in load_pages()
        if page.path not in fixed and not page.path.startswith("/static/")
    ] == []
