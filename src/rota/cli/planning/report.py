"""Reports what jobs asked for and what they took."""

from __future__ import annotations

from datetime import datetime

import click

from rota.cli.connect import answer, connected
from rota.cli.options import json_option, past
from rota.cli.render import Column, Row, show_table
from rota.cli.text import amount, count, local, size
from rota.sdk.methods import admin_calls
from rota.wire.reports import AmountsView, WasteItem, WasteView

COLUMNS = (
    Column("TENANT", spare=3, cut=True),
    Column("NAME", cut=True),
    Column("RUNS", right=True),
    Column("CPU ASKED", right=True),
    Column("USED p95", right=True),
    Column("MEMORY ASKED", right=True),
    Column("PEAK p95", right=True),
    Column("CPU h WASTED", spare=1, right=True),
    Column("GiB h WASTED", spare=2, right=True),
    Column("ASK FOR", right=True),
)


@click.group()
def report() -> None:
    """Report on what has run."""


@report.command()
@click.option("--tenant", help="Of this tenant.")
@click.option("--name", "-n", help="Of jobs with this name.")
@click.option(
    "--since", type=past, metavar="TIME", help="A time, or so long ago; whole days, 14 at most."
)
@click.option("--limit", type=click.IntRange(1, 5000), default=50, show_default=True)
@json_option
def waste(
    tenant: str | None, name: str | None, since: datetime | None, *, limit: int, as_json: bool
) -> None:
    """Say which jobs ask for more than they take, the most wasteful first."""
    asked = {
        "tenant": tenant,
        "name": name,
        "since": None if since is None else since.isoformat(),
        "limit": str(limit),
    }
    call = admin_calls.get_waste({k: v for k, v in asked.items() if v is not None})
    with connected() as client:
        answer(client, call, _draw, as_json=as_json)


def _draw(view: WasteView) -> None:
    rows = [_row(item) for item in view.items]
    show_table(COLUMNS, rows, empty="nothing was measured yet: no job has ended on a worker")
    sums = view.sums
    if sums.runs:
        click.echo(
            f"\nsince {local(view.since)}: of {sums.cpu_hours_asked:.2f} cpu hours asked for"
            f" {sums.cpu_hours_wasted:.2f} went unused, of {sums.memory_gib_hours_asked:.2f} GiB"
            f" hours {sums.memory_gib_hours_wasted:.2f}"
        )


def _row(item: WasteItem) -> Row:
    used, sums = item.used, item.sums
    return (
        item.tenant,
        item.name,
        count(sums.runs),
        amount(item.asked.cpu),
        f"{used.cpu.p95:.2f}",
        size(item.asked.memory) if item.asked.memory else "-",
        size(used.memory.p95),
        f"{sums.cpu_hours_wasted:.2f}",
        f"{sums.memory_gib_hours_wasted:.2f}",
        _suggestion(item.suggestion),
    )


def _suggestion(better: AmountsView | None) -> str:
    return "-" if better is None else f"{amount(better.cpu)} cpu, {size(better.memory)}"
