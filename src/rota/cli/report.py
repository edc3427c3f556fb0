"""Reports capacity: what jobs requested and used, and how many workers the backlog needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

from rota.cli import id_lookup
from rota.cli.connect import answer, connected
from rota.cli.options import NumberRange, duration, json_option, past_iso, size, without_none
from rota.cli.render import (
    Column,
    Columns,
    amount,
    console,
    count,
    local,
    plural,
    put,
    show_table,
    size_text,
    span,
)
from rota.sdk.methods import admin_calls
from rota.wire.capacity import (
    AmountsView,
    AutoscaleView,
    KindView,
    QueueDemandView,
    WasteItem,
    WasteView,
    WorkerCountView,
)
from rota.wire.formats import ByteSize, Duration

T = TypeVar("T")

WASTE_COLUMNS: Columns[WasteItem] = (
    Column("TENANT", lambda one: one.tenant, spare=3, cut=True),
    Column("NAME", lambda one: one.name, cut=True),
    Column("RUNS", lambda one: count(one.sums.runs), right=True),
    Column("CPU REQUESTED", lambda one: amount(one.asked.cpu), right=True),
    Column("USED p95", lambda one: f"{one.used.cpu.p95:.2f}", right=True),
    Column("MEMORY REQUESTED", lambda one: _size_or_dash(one.asked.memory), right=True),
    Column("PEAK p95", lambda one: size_text(one.used.memory.p95), right=True),
    Column("CPU h WASTED", lambda one: f"{one.sums.cpu_hours_wasted:.2f}", spare=1, right=True),
    Column(
        "GiB h WASTED", lambda one: f"{one.sums.memory_gib_hours_wasted:.2f}", spare=2, right=True
    ),
    Column("SUGGESTED", lambda one: _suggestion(one.suggestion), right=True),
)


def _size_or_dash(given: float) -> str:
    return size_text(given) if given else "-"


def _suggestion(better: AmountsView | None) -> str:
    return "-" if better is None else f"{amount(better.cpu)} cpu, {size_text(better.memory)}"


@click.group()
def report() -> None:
    """Report on past jobs."""


@report.command()
@click.option("--tenant", help="Only of this tenant.")
@click.option("--name", "-n", help="Only of jobs with this name.")
@click.option(
    "--since",
    type=past_iso,
    metavar="TIME",
    help="Start: a time, or how long ago; whole days, 14 at most.",
)
@click.option("--limit", type=click.IntRange(1, 5000), default=50, show_default=True)
@json_option
def waste(*, limit: int, as_json: bool, **given: Any) -> None:
    """List jobs that request more resources than they use, the most wasteful first."""
    call = admin_calls.get_waste(without_none({**given, "limit": str(limit)}))
    with connected() as client:
        answer(client, call, _draw_waste, as_json=as_json)


def _draw_waste(view: WasteView) -> None:
    empty = "no data yet: no job has ended on a worker"
    show_table(WASTE_COLUMNS, view.items, empty=empty)
    sums = view.sums
    if sums.runs:
        click.echo(
            f"\nsince {local(view.since)}: of {sums.cpu_hours_asked:.2f} requested cpu hours"
            f" {sums.cpu_hours_wasted:.2f} were unused, of {sums.memory_gib_hours_asked:.2f} GiB"
            f" hours {sums.memory_gib_hours_wasted:.2f}"
        )


# Workers that would do


def _count_columns(counts_of: Callable[[T], WorkerCountView]) -> Columns[T]:
    return (
        Column("NEEDED", lambda one: count(counts_of(one).needed), right=True),
        Column("ONLINE", lambda one: count(counts_of(one).online), right=True),
        Column("IDLE", lambda one: count(counts_of(one).idle), spare=2, right=True),
        Column("ADD", lambda one: count(counts_of(one).add), right=True),
        Column("REMOVE", lambda one: count(counts_of(one).remove), right=True),
    )


Demand: TypeAlias = tuple[str, QueueDemandView]
QUEUE_COLUMNS: Columns[Demand] = (
    Column("QUEUE", lambda one: f"{one[0]} (paused)" if one[1].paused else one[0], cut=True),
    Column("WAITING", lambda one: count(one[1].jobs), right=True),
    Column("WORK", lambda one: span(one[1].work), right=True),
    Column("RUNNING", lambda one: count(one[1].running), spare=3, right=True),
    Column("ARRIVING/s", lambda one: f"{one[1].arrival.jobs_per_second:.2g}", spare=1, right=True),
    *_count_columns(lambda one: one[1].workers),
)
KIND_COLUMNS: Columns[KindView] = (
    Column("WORKERS WITH", lambda one: _kind_text(one), cut=True),
    *_count_columns(lambda one: one.workers),
)


@click.command()
@click.option(
    "--target", type=duration, default="5m", show_default=True, metavar="DURATION",
    help="Time in which the backlog should be cleared.",
)  # fmt: skip
@click.option("--queue", "-q", shell_complete=id_lookup.complete_queues, help="Only of this queue.")
@click.option("--cpu", type=NumberRange(0), help="Cores of a new worker.")
@click.option("--memory", type=size, metavar="SIZE", help="Memory of a new worker.")
@click.option("--gpu", type=NumberRange(0), help="GPUs of a new worker.")
@json_option
def autoscale(
    target: Duration, queue: str | None, memory: ByteSize | None, *, as_json: bool, **amounts: float
) -> None:
    """Show how many workers would clear the backlog.

    \b
      rota autoscale
      rota autoscale --target 2m --queue mail
      rota autoscale --cpu 16 --memory 64GiB     if workers of this size were added
    """
    asked = {"target": str(target.seconds), "queue": queue}
    asked["memory"] = None if memory is None else str(memory.bytes)
    asked |= {kind: None if given is None else str(given) for kind, given in amounts.items()}
    call = admin_calls.get_autoscale(without_none(asked))
    with connected() as client:
        answer(client, call, _draw_autoscale, as_json=as_json)


def _draw_autoscale(view: AutoscaleView) -> None:
    show_table(QUEUE_COLUMNS, list(view.queues.items()), empty="no queues yet")
    if view.kinds:
        put(console(), "")
        show_table(KIND_COLUMNS, view.kinds, empty="")
    counts = view.workers
    there = f"{counts.online or 'none'} {_is(counts.online or 1)}"
    needed = plural(counts.needed, "worker")
    click.echo(f"\n{needed} would clear the backlog in {span(view.target)}; {there} online")
    if view.stranded:
        stranded = plural(view.stranded, "job")
        click.echo(f"{stranded} {_is(view.stranded)} not suited to any known worker: see rota why")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _kind_text(kind: KindView) -> str:
    has = kind.size
    parts = [f"{amount(has.cpu)} cpu"]
    parts += [size_text(has.memory)] if has.memory else []
    parts += [f"{amount(has.gpu)} gpu"] if has.gpu else []
    parts += [f"{amount(number)} {name}" for name, number in has.custom.items()]
    parts += [f"only {' '.join(kind.only)}"] if kind.only else []
    return ", ".join(parts)
