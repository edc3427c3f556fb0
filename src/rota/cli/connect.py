"""Opens the client a command works with; what goes wrong with it ends the command in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rota.cli.problems import Failure, explain
from rota.cli.render import print_json
from rota.sdk import Client, Patience, RotaError, discover
from rota.sdk.answers import read
from rota.sdk.calls import Call

T = TypeVar("T")

AT_A_TERMINAL = Patience(retry_for_s=30.0, first_contact_s=0.0)
"""A server that was never there is said at once; one that restarts is waited for."""


@contextmanager
def connected() -> Iterator[Client]:
    """A client of the server that the environment names."""
    endpoint = discover()
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
