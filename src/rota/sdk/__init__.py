"""ASKS: a light client of the HTTP API."""

from rota.sdk.calls import JobSearch
from rota.sdk.carrier import Patience
from rota.sdk.client import Client
from rota.sdk.discover import Endpoint, discover
from rota.sdk.errors import (
    AnswerError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
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
from rota.sdk.watching import Event

__all__ = [
    "AnswerError",
    "ApiError",
    "Client",
    "ConflictError",
    "Endpoint",
    "Event",
    "ForbiddenError",
    "InvalidError",
    "JobSearch",
    "LimitError",
    "NotFoundError",
    "Patience",
    "RotaError",
    "ServerError",
    "SilenceError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnreachableError",
    "WaitTimeoutError",
    "discover",
]
