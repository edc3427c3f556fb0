"""Turns what went wrong into one clear line that says what to do."""

from __future__ import annotations

import click

from rota.cli.text import plain
from rota.sdk import (
    ApiError,
    Endpoint,
    RotaError,
    UnauthenticatedError,
    UnreachableError,
    WaitTimeoutError,
)


class Failure(click.ClickException):
    """A command did not do what was asked: exit status 1 and one line."""


def explain(error: RotaError, endpoint: Endpoint) -> str:
    """The line."""
    match error:
        case UnreachableError():
            return _unreachable(error, endpoint)
        case UnauthenticatedError():
            return _unauthenticated(error, endpoint)
        case ApiError():
            return _refused(error)
        case WaitTimeoutError():
            return plain(str(error))
        case _:
            return plain(f"{endpoint.shown}: {error}")


def _unreachable(error: UnreachableError, endpoint: Endpoint) -> str:
    line = f"no server at {endpoint.shown} ({error.cause})."
    if not error.refused:
        return plain(f"no answer from {endpoint.shown} ({error.cause}).")
    if endpoint.is_local:
        return plain(f"{line} Start one with: rota up")
    return plain(f"{line} The address comes from {endpoint.url_from}.")


def _unauthenticated(error: UnauthenticatedError, endpoint: Endpoint) -> str:
    if endpoint.token_from is not None:
        # What follows is for those who write their requests by hand.
        why = error.detail.partition(": send ")[0]
        return plain(
            f"{endpoint.shown} does not accept the token from {endpoint.token_from}: {why}"
        )
    places = "; ".join(endpoint.looked_in)
    return f"{endpoint.shown} wants a token. Set ROTA_TOKEN. Looked in: {places}"


def _refused(error: ApiError) -> str:
    said = error.detail or f"HTTP {error.status}"
    extra = [
        f"{one.field}: {one.message}"
        for one in error.errors
        if one.message not in said and one.field
    ]
    return plain("; ".join([said, *extra]))
