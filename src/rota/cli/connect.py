"""Opens the client a command works with; what goes wrong with it ends the command in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rota.cli.problems import Failure, explain
from rota.cli.render import print_json
from rota.cli.text import plain
from rota.sdk import Client, Patience, RotaError, discover
from rota.sdk.answers import read
from rota.sdk.calls import Call
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import AddressError

T = TypeVar("T")

AT_A_TERMINAL = Patience(retry_for_s=30.0, first_contact_s=0.0)
"""A server that was never there is said at once; one that restarts is waited for."""


def endpoint_of(url: str | Sequence[str] | None = None) -> Endpoint:
    """The server that was named, or that the environment names."""
    try:
        return discover(url)
    except AddressError as error:
        raise Failure(plain(str(error))) from error


@contextmanager
def connected() -> Iterator[Client]:
    """A client of the server that the environment names."""
    endpoint = endpoint_of()
    try:
        with Client(endpoint, patience=AT_A_TERMINAL) as client:
            yield client
    except RotaError as error:
        raise Failure(explain(error, endpoint)) from error


def answer(client: Client, call: Call[T], draw: Callable[[T], None], *, as_json: bool) -> None:
    """Asks, and prints the answer: drawn for people, or just as it came."""
    got = client.ask(call)
    if as_json:
        print_json(got.body)
    else:
        draw(read(call, got.status, got.headers, got.body))
