"""Says how many workers would clear what waits, by queue and by kind of worker."""

from __future__ import annotations

import click

from rota.cli import offers
from rota.cli.connect import answer, connected
from rota.cli.options import NumberRange, duration, json_option, size
from rota.cli.render import Column, Row, console, put, show_table
from rota.cli.text import amount, count, plural, span
from rota.cli.text import size as size_text
from rota.sdk.methods import admin_calls
from rota.wire.autoscale import AutoscaleView, CrewView, KindView, QueueDemandView
from rota.wire.units import ByteSize, Duration

CREW_COLUMNS = (
    Column("NEEDED", right=True),
    Column("ONLINE", right=True),
    Column("IDLE", spare=2, right=True),
    Column("ADD", right=True),
    Column("REMOVE", right=True),
)
QUEUE_COLUMNS = (
    Column("QUEUE", cut=True),
    Column("WAITING", right=True),
    Column("WORK", right=True),
    Column("RUNNING", spare=3, right=True),
    Column("COMING/s", spare=1, right=True),
    *CREW_COLUMNS,
)
KIND_COLUMNS = (Column("WORKERS WITH", cut=True), *CREW_COLUMNS)


@click.command()
@click.option(
    "--target", type=duration, default="5m", show_default=True, metavar="DURATION",
    help="Within which all that waits is to be done.",
)  # fmt: skip
@click.option("--queue", "-q", shell_complete=offers.queues, help="Of this queue only.")
@click.option("--cpu", type=NumberRange(0), help="A new worker would have so many cpus.")
@click.option("--memory", type=size, metavar="SIZE", help="And so much memory.")
@click.option("--gpu", type=NumberRange(0), help="And so many gpus.")
@json_option
def autoscale(
    target: Duration, queue: str | None, memory: ByteSize | None, *, as_json: bool, **amounts: float
) -> None:
    """Say how many workers would clear what waits.

    \b
      rota autoscale
      rota autoscale --target 2m --queue mail
      rota autoscale --cpu 16 --memory 64GiB     if workers of this size were added
    """
    asked = {"target": str(target.seconds), "queue": queue}
    asked["memory"] = None if memory is None else str(memory.bytes)
    asked |= {kind: None if given is None else str(given) for kind, given in amounts.items()}
    call = admin_calls.get_autoscale({k: v for k, v in asked.items() if v is not None})
    with connected() as client:
        answer(client, call, _draw, as_json=as_json)


def _draw(view: AutoscaleView) -> None:
    rows = [_queue_row(name, queue) for name, queue in view.queues.items()]
    show_table(QUEUE_COLUMNS, rows, empty="no queues yet")
    if view.kinds:
        put(console(), "")
        show_table(KIND_COLUMNS, [_kind_row(kind) for kind in view.kinds], empty="")
    crew = view.workers
    there = "nobody is" if not crew.online else f"{crew.online} {_is(crew.online)}"
    needed = plural(crew.needed, "worker")
    click.echo(f"\n{needed} would do all of it in {span(view.target)}; {there} online")
    if view.stranded:
        stranded = plural(view.stranded, "job")
        click.echo(f"{stranded} {_is(view.stranded)} for workers that are not known: see rota why")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _queue_row(name: str, queue: QueueDemandView) -> Row:
    return (
        f"{name} (paused)" if queue.paused else name,
        count(queue.jobs),
        span(queue.work),
        count(queue.running),
        f"{queue.arrival.jobs_per_second:.2g}",
        *_crew_cells(queue.workers),
    )


def _kind_row(kind: KindView) -> Row:
    has = kind.size
    parts = [f"{amount(has.cpu)} cpu"]
    parts += [size_text(has.memory)] if has.memory else []
    parts += [f"{amount(has.gpu)} gpu"] if has.gpu else []
    parts += [f"{amount(number)} {name}" for name, number in has.custom.items()]
    parts += [f"only {' '.join(kind.only)}"] if kind.only else []
    return (", ".join(parts), *_crew_cells(kind.workers))


def _crew_cells(crew: CrewView) -> tuple[str, ...]:
    figures = (crew.needed, crew.online, crew.idle, crew.add, crew.remove)
    return tuple(count(figure) for figure in figures)
