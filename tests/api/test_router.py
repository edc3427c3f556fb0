"""Operations are found by their paths as Starlette's own routes would find them."""

from __future__ import annotations

import re

import pytest
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from rota.api.endpoints import OPERATIONS
from rota.api.router import Router

PATHS = list(dict.fromkeys(operation.path for operation in OPERATIONS))


class Named:
    """Application that does nothing."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


CALLS = {path: Named(path) for path in PATHS}
ROUTES = [Route(path, call) for path, call in CALLS.items()]
NOWHERE = Named("nowhere")


def by_routes(path: str) -> tuple[object, object] | None:
    scope = {"type": "http", "path": path, "method": "GET"}
    for route in ROUTES:
        match, more = route.matches(scope)
        if match is Match.FULL:
            return more["endpoint"], more["path_params"]
    return None


@pytest.mark.parametrize("path", PATHS)
def test_every_operation_is_found_with_its_parameters(path: str) -> None:
    asked = re.sub(r"\{(\w+)\}", r"a \1 of ü.", path)
    found = Router(NOWHERE, CALLS).find(asked)
    assert found == by_routes(asked)
    assert found is not None
    assert found[0] is CALLS[path]


@pytest.mark.parametrize(
    "path", ["", "/", "/job", "/jobs/", "//jobs", "/jobs//why", "/jobs/1/why/2", "/ui/jobs", "jobs"]
)
def test_an_unknown_path_goes_to_the_next_application(path: str) -> None:
    assert Router(NOWHERE, CALLS).find(path) is None
    assert by_routes(path) is None
