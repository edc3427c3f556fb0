"""What users import stays light, and shows exactly what it promises."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

HEAVY = (
    *("rota.core", "rota.store", "rota.engine", "rota.api", "rota.worker", "rota.cli"),
    *("starlette", "uvicorn", "apsw", "click", "rich"),
)


def modules_after(statement: str) -> list[str]:
    """What a fresh interpreter has loaded after this statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    loaded: list[str] = json.loads(run.stdout)
    return loaded


def heavy(loaded: list[str]) -> list[str]:
    """Those of them that a client must not pay for."""
    return [
        name for name in loaded if name.startswith(tuple(f"{h}." for h in HEAVY)) or name in HEAVY
    ]


def test_the_sdk_loads_nothing_of_the_server() -> None:
    assert heavy(modules_after("from rota.sdk import *")) == []


def test_loading_the_server_would_be_noticed() -> None:
    assert heavy(modules_after("import rota.store.protocol"))


def test_the_sdk_shows_exactly_what_it_promises() -> None:
    import rota.sdk

    assert sorted(rota.sdk._MODULES) == sorted(rota.sdk.__all__)
    assert [name for name in rota.sdk.__all__ if not hasattr(rota.sdk, name)] == []
    # A module of the same name would take its place as soon as somebody imports that.
    modules = {module.name for module in pkgutil.iter_modules(rota.sdk.__path__)}
    assert modules.isdisjoint(rota.sdk.__all__)


def test_a_server_that_is_alone_loads_no_client_and_no_other_database() -> None:
    loaded = modules_after("import rota.cli.start.serve")
    costly = ("aiohttp", "httpx2", "asyncpg", "rota.sdk.client")
    assert [name for name in loaded if name.startswith(costly)] == []


def test_a_server_that_does_not_trace_or_tell_loads_no_library_for_it() -> None:
    loaded = modules_after("import rota.cli.start.serve, rota.cli.start.worker, rota.sdk.client")
    costly = ("opentelemetry", "apprise", "requests", "google.protobuf")
    assert [name for name in loaded if name.startswith(costly)] == []
