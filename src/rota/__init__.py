"""Rota: one distributed job scheduler.

The names below are loaded when they are first used: `import rota` alone costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.sdk import (
        ApiError,
        App,
        AsyncClient,
        AsyncJob,
        Cancelled,
        Client,
        ConflictError,
        Context,
        Fail,
        InvalidError,
        Job,
        JobFailed,
        JobFunction,
        JobSearch,
        NotFoundError,
        Patience,
        Retry,
        RotaError,
        UnreachableError,
        WaitTimeoutError,
        current_context,
    )

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "App",
    "AsyncClient",
    "AsyncJob",
    "Cancelled",
    "Client",
    "ConflictError",
    "Context",
    "Fail",
    "InvalidError",
    "Job",
    "JobFailed",
    "JobFunction",
    "JobSearch",
    "NotFoundError",
    "Patience",
    "Retry",
    "RotaError",
    "UnreachableError",
    "WaitTimeoutError",
    "current_context",
]


# Hidden from type checkers: with this function they would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module("rota.sdk"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
