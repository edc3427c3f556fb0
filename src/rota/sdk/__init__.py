"""Client of the HTTP API, blocking and asynchronous, and `App`, which makes functions jobs.

Each name below is loaded when it is first used: a program that only looks for an address loads no
client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.sdk.app import App
    from rota.sdk.arguments import ArgumentError
    from rota.sdk.async_client import AsyncClient
    from rota.sdk.calls import JobSearch
    from rota.sdk.client import Client
    from rota.sdk.context import Context, current_context
    from rota.sdk.declare.functions import JobFunction
    from rota.sdk.declare.handles import AsyncJob, Job
    from rota.sdk.declare.inline import Runs
    from rota.sdk.discovery import Endpoint, discover
    from rota.sdk.errors import (
        AnswerError,
        ApiError,
        ConflictError,
        ForbiddenError,
        InvalidError,
        JobFailed,
        LimitError,
        NotFoundError,
        RotaError,
        ServerError,
        SilenceError,
        UnauthenticatedError,
        UnavailableError,
        UnreachableError,
        WaitTimeoutError,
    )
    from rota.sdk.job_exceptions import Cancelled, Fail, Retry
    from rota.sdk.methods.schedule_calls import LedgerSearch
    from rota.sdk.request_plan import Patience
    from rota.sdk.watching import Event

__all__ = [
    "AnswerError",
    "ApiError",
    "App",
    "ArgumentError",
    "AsyncClient",
    "AsyncJob",
    "Cancelled",
    "Client",
    "ConflictError",
    "Context",
    "Endpoint",
    "Event",
    "Fail",
    "ForbiddenError",
    "InvalidError",
    "Job",
    "JobFailed",
    "JobFunction",
    "JobSearch",
    "LedgerSearch",
    "LimitError",
    "NotFoundError",
    "Patience",
    "Retry",
    "RotaError",
    "Runs",
    "ServerError",
    "SilenceError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnreachableError",
    "WaitTimeoutError",
    "current_context",
    "discover",
]

_MODULES = {
    "AnswerError": "errors",
    "ApiError": "errors",
    "App": "app",
    "ArgumentError": "arguments",
    "AsyncClient": "async_client",
    "AsyncJob": "declare.handles",
    "Cancelled": "job_exceptions",
    "Client": "client",
    "ConflictError": "errors",
    "Context": "context",
    "Endpoint": "discovery",
    "Event": "watching",
    "Fail": "job_exceptions",
    "ForbiddenError": "errors",
    "InvalidError": "errors",
    "Job": "declare.handles",
    "JobFailed": "errors",
    "JobFunction": "declare.functions",
    "JobSearch": "calls",
    "LedgerSearch": "methods.schedule_calls",
    "LimitError": "errors",
    "NotFoundError": "errors",
    "Patience": "request_plan",
    "Retry": "job_exceptions",
    "RotaError": "errors",
    "Runs": "declare.inline",
    "ServerError": "errors",
    "SilenceError": "errors",
    "UnauthenticatedError": "errors",
    "UnavailableError": "errors",
    "UnreachableError": "errors",
    "WaitTimeoutError": "errors",
    "current_context": "context",
    "discover": "discovery",
}


# Hidden from type checkers: with this function they would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
