"""Opens the client a command works with; what goes wrong with it ends the command in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
import msgspec

from rota.cli.problems import Failure, explain
from rota.cli.render import plain, print_json
from rota.sdk import Client, Patience, RotaError, discover
from rota.sdk.calls import Call
from rota.sdk.discovery import URL_DEFAULT, Endpoint
from rota.sdk.errors import AddressError, TokenError
from rota.sdk.request_plan import read
from rota.wire.limits import PAGE_ITEMS_MAX

T = TypeVar("T")

TERMINAL_PATIENCE = Patience(retry_for_s=30.0, first_contact_s=0.0)
"""A server that was never there is said at once; one that restarts is waited for."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Bounds of one invocation of the command line; `main.run` may be given others."""

    batch_jobs: int = 1_000
    """Jobs of one request: large enough to be quick, small enough for a progress bar to move."""
    url_default: str = URL_DEFAULT
    """The server that is asked when nothing names one."""


def limits() -> CommandLimits:
    """Returns the limits of the command that runs."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(CommandLimits)
    return found or CommandLimits()


def endpoint_of(url: str | Sequence[str] | None = None) -> Endpoint:
    """Finds the server that was named, or that the environment names."""
    try:
        return discover(url, default=limits().url_default)
    except (AddressError, TokenError) as error:
        message = plain(str(error))
        if isinstance(error, AddressError) and url:
            raise click.UsageError(message) from error
        raise Failure(message) from error


@contextmanager
def connected() -> Iterator[Client]:
    """Opens a client of the server that the environment names."""
    endpoint = endpoint_of()
    try:
        with Client(endpoint, patience=TERMINAL_PATIENCE) as client:
            yield client
    except RotaError as error:
        raise Failure(explain(error, endpoint)) from error


def answer(client: Client, call: Call[T], draw: Callable[[T], None], *, as_json: bool) -> None:
    """Asks, and prints the answer: drawn for people, or as JSON."""
    got = client.ask(call)
    if as_json:
        print_json(got.body)
    else:
        draw(read(call, got.status, got.headers, got.body))


def every_item(client: Client, page_of: Callable[..., Call[Any]]) -> list[Any]:
    """Gathers the items of all pages; `page_of` makes the call for a limit and a cursor."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = client.call(page_of(limit=PAGE_ITEMS_MAX, cursor=cursor))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def answer_list(
    client: Client, call: Call[T], limit: int, draw: Callable[[T], None], *, as_json: bool
) -> None:
    """Prints a page; where a server ends one early, asks for more until there are enough.

    It does not where a gateway lacks cells: that would be to wait for them.
    """
    got = client.ask(call)
    page: dict[str, Any] = msgspec.json.decode(got.body)
    while page["next_cursor"] and len(page["items"]) < limit and "missing_cells" not in page:
        asked = {"limit": str(limit - len(page["items"])), "cursor": page["next_cursor"]}
        others = tuple(one for one in call.params if one[0] not in asked)
        got = client.ask(replace(call, params=(*others, *asked.items())))
        more = msgspec.json.decode(got.body)
        page = more | {"items": page["items"] + more["items"]}
    body = msgspec.json.encode(page)
    if as_json:
        print_json(body)
    else:
        draw(read(call, got.status, got.headers, body))
