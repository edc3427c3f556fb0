"""Lists and sends events, and runs what listens to other systems and tells them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from rota.cli.connect import answer, connected
from rota.cli.jobs.tasks import read_json
from rota.cli.occasions.triggers import styled
from rota.cli.options import json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, Row, print_object, show_table
from rota.cli.text import local, short
from rota.sdk.methods import event_calls as calls
from rota.wire.events import EventView

COLUMNS = (
    Column("CAME"),
    Column("TYPE", cut=True),
    Column("SOURCE", spare=1, cut=True),
    Column("ID", cut=True),
    Column("AGAIN", spare=2, right=True),
    Column("JOBS", cut=True),
)
OUTCOME_COLUMNS = (
    Column("TRIGGER", cut=True),
    Column("OUTCOME"),
    Column("JOB"),
    Column("WHY", spare=1, cut=True),
)


@click.group(invoke_without_command=True)
@click.option("--type", "kind", help="Only of this type.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
@click.pass_context
def events(ctx: click.Context, *, kind: str | None, limit: int, as_json: bool) -> None:
    """List the last events, send one, or listen to other systems."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        page = client.events(type=kind, limit=limit)
        if as_json:
            print_object(page)
            return
        show_table(COLUMNS, [_row(one) for one in page.items], empty="no events yet")


def _row(one: EventView) -> Row:
    jobs = ", ".join(short(job_id) for job_id in one.job_ids)
    again = str(one.repeats) if one.repeats else "-"
    return (local(one.received_at), one.type, one.source, one.id, again, jobs)


@events.command()
@click.argument("kind", metavar="TYPE")
@click.argument("data", metavar="[JSON|@FILE]", required=False)
@click.option("--source", default="/cli", show_default=True, help="Who tells it.")
@click.option("--id", "event_id", help="The same again has no effect; left out: a new one.")
@click.option("--subject", help="What it is about.")
@json_option
def send(kind: str, data: str | None, *, as_json: bool, **given: Any) -> None:
    """Tell that something happened.

    \b
      rota events send object.uploaded '{"name": "sales.csv", "size": 4096}'
      rota events send order.paid @order.json --source /shop --id order-42
    """
    event: dict[str, Any] = {"specversion": "1.0", "type": kind, "source": given["source"]}
    if data is not None:
        event["data"] = read_json(data, "data")
    if given["subject"]:
        event["subject"] = given["subject"]
    with connected() as client:
        said = given["event_id"]
        event["id"] = client.state.mint_key() if said is None else said
        answer(client, calls.send_event(event), _draw, as_json=as_json)


def _draw(told: EventView) -> None:
    again = " again: it has no effect" if told.duplicate else ""
    click.echo(f"{told.type} {told.id}{again}")
    rows: list[Row] = [
        (one.name or short(one.trigger_id), styled(one.outcome), short(one.job_id), one.message)
        for one in told.outcomes
    ]
    show_table(OUTCOME_COLUMNS, rows, empty="no trigger is for events of this type")


@events.command()
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
    from rota.cli.start.diary import keep_diary
    from rota.events.service import serve
    from rota.sdk import AsyncClient

    keep_diary()
    async with AsyncClient(config.url, config.token) as client:
        serving = asyncio.create_task(serve(config, client))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving
    return 0
