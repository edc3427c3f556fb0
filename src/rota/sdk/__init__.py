"""ASKS: a light client of the HTTP API."""

from rota.sdk.aio import AsyncClient
from rota.sdk.app import App
from rota.sdk.calls import JobSearch
from rota.sdk.client import Client
from rota.sdk.context import Context, current_context
from rota.sdk.discover import Endpoint, discover
from rota.sdk.documents import ArgumentError
from rota.sdk.endings import Cancelled, Fail, Retry
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
from rota.sdk.events import Event
from rota.sdk.flows import Patience
from rota.sdk.functions import JobFunction
from rota.sdk.handles import AsyncJob, Job
from rota.sdk.inline import Runs
from rota.sdk.schedule_calls import LedgerSearch

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
