"""Turns errors into one clear line that says what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from rota.cli.render import plain
from rota.sdk import (
    ApiError,
    Endpoint,
    RotaError,
    UnauthenticatedError,
    UnreachableError,
    WaitTimeoutError,
)
from rota.sdk.discovery import DATA_DEFAULT, DEFAULT


class Failure(click.ClickException):
    """Failure of a command: one line, and exit status 1."""


def refuse_all_but_linux(platform: str) -> None:
    """Refuses to start a worker elsewhere: its limits and process control exist on Linux only."""
    if platform != "linux":
        raise Failure(
            f"workers run on Linux only, and this is {platform}: start them in a container or a"
            " virtual machine with Linux. `rota up --workers 0` starts none"
        )


def explain(error: RotaError, endpoint: Endpoint) -> str:
    """Explains an error in one line that says what to do."""
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
    if not error.refused:
        return plain(f"no answer from {endpoint.shown} ({error.cause}).")
    line = f"no server at {endpoint.shown} ({error.cause}). {_origin(endpoint)}."
    if not endpoint.is_local:
        return plain(line)
    other = endpoint.elsewhere or "http://HOST:PORT"
    return plain(f"{line} Start {_start(endpoint)}, or name another: ROTA_URL={other}")


def _origin(endpoint: Endpoint) -> str:
    """Says where the address comes from."""
    if endpoint.stopped:
        return f"The server of {endpoint.data} has stopped, so the default address was used"
    if endpoint.url_from == DEFAULT:
        return "It is the default address"
    return f"The address comes from {endpoint.url_from}"


def _start(endpoint: Endpoint) -> str:
    """Names the command that starts the server again, or a first one."""
    if endpoint.data is None:
        return "one with: rota up"
    here = Path.cwd() / DATA_DEFAULT
    where = "" if Path(endpoint.data) == here else f" --data {shlex.quote(endpoint.data)}"
    return f"it again with: rota up{where}"


def _unauthenticated(error: UnauthenticatedError, endpoint: Endpoint) -> str:
    if endpoint.token_from is not None:
        # The rest tells people who write requests by hand which header to send.
        why = error.detail.partition(": send ")[0]
        source = endpoint.token_from
        return plain(f"{endpoint.shown} does not accept the token from {source}: {why}")
    if endpoint.stopped:
        return plain(
            f"{endpoint.shown} wants a token, and that of {endpoint.data} was not sent: its server"
            f" has stopped, and another one answers there. Start {_start(endpoint)}, or name the"
            f" other: ROTA_URL={endpoint.url}, with its ROTA_TOKEN unless it is yours"
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
