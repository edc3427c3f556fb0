"""Lists and sends events, listens to other systems for them, and sets up webhook endpoints."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from rota.cli.nouns import Noun, Verb, listing, removed
from rota.cli.occasions.triggers import styled
from rota.cli.options import duration, read_json, without_none
from rota.cli.problems import Failure
from rota.cli.render import Column, Columns, show_table
from rota.cli.text import local, short, span
from rota.sdk import Client
from rota.sdk.calls import Call
from rota.sdk.methods import event_calls as calls
from rota.wire.events import EventOutcome, EventPage, EventView, HookPage, HookView

EVENT_COLUMNS: Columns[EventView] = (
    Column("CAME", lambda one: local(one.received_at)),
    Column("TYPE", lambda one: one.type, cut=True),
    Column("SOURCE", lambda one: one.source, spare=1, cut=True),
    Column("ID", lambda one: one.id, cut=True),
    Column("AGAIN", lambda one: str(one.repeats) if one.repeats else "-", spare=2, right=True),
    Column("JOBS", lambda one: ", ".join(short(job_id) for job_id in one.job_ids), cut=True),
)
OUTCOME_COLUMNS: Columns[EventOutcome] = (
    Column("TRIGGER", lambda one: one.name or short(one.trigger_id), cut=True),
    Column("OUTCOME", lambda one: styled(one.outcome)),
    Column("JOB", lambda one: short(one.job_id)),
    Column("WHY", lambda one: one.message, spare=1, cut=True),
)


def _draw_events(page: EventPage) -> None:
    show_table(EVENT_COLUMNS, page.items, empty="no events yet")


def _list_events(client: Client, *, kind: str | None, limit: int) -> EventPage:
    return client.events(type=kind, limit=limit)


def _event_to_send(*, kind: str, data: str | None, **given: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"specversion": "1.0", "type": kind, "source": given["source"]}
    if data is not None:
        event["data"] = read_json(data, "data")
    if given["subject"]:
        event["subject"] = given["subject"]
    return event | without_none({"id": given["event_id"]})


def _send(client: Client, event: dict[str, Any]) -> Call[EventView]:
    return calls.send_event({"id": client.state.mint_key(), **event})


def _draw_event(sent: EventView) -> None:
    again = " again: it has no effect" if sent.duplicate else ""
    click.echo(f"{sent.type} {sent.id}{again}")
    show_table(OUTCOME_COLUMNS, sent.outcomes, empty="no trigger is for events of this type")


@click.command()
@click.option("--config", "-c", type=Path, required=True, metavar="FILE", help="What to run: TOML.")
@click.option("--check", is_flag=True, help="Only read the file.")
@click.pass_context
def listen(ctx: click.Context, *, config: Path, check: bool) -> None:
    """Listen to folders, databases and brokers, and tell webhooks and brokers what changes.

    It may run anywhere that reaches the server, and be stopped at any time: what was not confirmed
    comes again, and the server knows what it has seen.
    """
    from rota.events.config import ConfigError, read_config

    try:
        read = read_config(config)
        if check:
            click.echo(f"{len(read.source)} sources and {len(read.sink)} sinks")
            return
        ctx.exit(asyncio.run(_listen(read)))
    except ConfigError as error:
        raise Failure(str(error)) from error


async def _listen(config: Any) -> int:
    from rota.cli.start.server_log import set_up_log
    from rota.events.service import serve
    from rota.sdk import AsyncClient

    set_up_log()
    async with AsyncClient(config.url, config.token) as client:
        serving = asyncio.create_task(serve(config, client))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving
    return 0


events = Noun(
    name="events",
    help="List the last events, send one, or listen to other systems.",
    default=listing(
        params=(
            click.option("--type", "kind", help="Only of this type."),
            click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True),
        ),
        fetch=_list_events,
        draw=_draw_events,
    ),
    verbs=(
        Verb(
            "send",
            """Tell that something happened.

            \b
              rota events send object.uploaded '{"name": "sales.csv", "size": 4096}'
              rota events send order.paid @order.json --source /shop --id order-42
            """,
            _send,
            _draw_event,
            names_one=False,
            params=(
                click.argument("kind", metavar="TYPE"),
                click.argument("data", metavar="[JSON|@FILE]", required=False),
                click.option("--source", default="/cli", show_default=True, help="Who tells it."),
                click.option(
                    "--id", "event_id", help="The same again has no effect; left out: a new one."
                ),
                click.option("--subject", help="What it is about."),
            ),
            body=_event_to_send,
            reads=True,
        ),
    ),
    commands=(listen,),
).group()


# Webhook endpoints

HOOK_COLUMNS: Columns[HookView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("SCHEME", lambda one: one.scheme),
    Column("EVENTS", lambda one: f"{one.type}.*", cut=True),
    Column("PATH", lambda one: one.path, cut=True),
    Column("TOLERANCE", lambda one: span(one.tolerance), spare=2, right=True),
    Column("CHANGED", lambda one: local(one.updated_at), spare=1),
)


def _draw_hooks(page: HookPage) -> None:
    show_table(HOOK_COLUMNS, page.items, empty="no webhook endpoints yet")


def _hook(*, secret: str | None, kind: str | None, **given: Any) -> dict[str, Any]:
    parts = {"secrets": [secret] if secret else None, "type": kind or None, **given}
    return without_none(parts)


def _draw_hook(hook: HookView) -> None:
    click.echo(f"{hook.path} takes what {hook.scheme} signs; its events are {hook.type}.*")
    if hook.secret:
        click.echo(f"secret: {hook.secret}")


hooks = Noun(
    name="hooks",
    help="List webhook endpoints, or act on one: set, delete.",
    default=listing(fetch=lambda client: HookPage(client.hooks(), None), draw=_draw_hooks),
    verbs=(
        Verb(
            "set",
            "Set up an endpoint; the secret is printed if it was made, and never again.",
            calls.set_hook,
            _draw_hook,
            params=(
                click.option(
                    "--scheme",
                    type=click.Choice(("github", "stripe", "rota")),
                    required=True,
                    help="How its sender signs.",
                ),
                click.option(
                    "--secret",
                    envvar="ROTA_HOOK_SECRET",
                    help="Shared with the sender; left out: a new one.",
                ),
                click.option("--type", "kind", help="What the types of its events begin with."),
                click.option(
                    "--tolerance",
                    type=duration,
                    metavar="DURATION",
                    help="How old a signature may be.",
                ),
            ),
            body=_hook,
        ),
        Verb("delete", "Remove an endpoint.", calls.delete_hook, done=removed),
    ),
).group()
