"""A live view: figures, queues, workers and running jobs, drawn again every moment."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rota.cli.cell.service import resource_line
from rota.cli.connect import connected
from rota.cli.options import duration, json_option, now_ms
from rota.cli.render import console, print_object, put, rich_text, table
from rota.cli.text import age, count
from rota.cli.views import (
    JOB_COLUMNS,
    QUEUE_COLUMNS,
    WORKER_COLUMNS,
    job_row,
    queue_row,
    worker_row,
)
from rota.sdk import Client, JobSearch
from rota.wire.jobs import JobView
from rota.wire.queues import QueueView
from rota.wire.service import StatsView
from rota.wire.units import Duration
from rota.wire.workers import WorkerView

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE = ("running", "cancelling", "queued", "pending")
JOBS_SHOWN = 100
ROWS_AROUND = 12
"""Lines of a screen that are not rows of a table: figures, headings and blanks."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything one frame shows."""

    url: str
    at_ms: int
    stats: StatsView
    queues: list[QueueView]
    workers: list[WorkerView]
    running: list[JobView]


def take(client: Client) -> Picture:
    """What the server says now."""
    search = JobSearch(status=("running", "cancelling"), limit=JOBS_SHOWN)
    workers = [worker for worker in client.workers() if worker.status != "offline"]
    running = client.jobs_page(search).items
    return Picture(client.endpoint.url, now_ms(), client.stats(), client.queues(), workers, running)


@click.command()
@click.option("--once", is_flag=True, help="Draw once and leave.")
@click.option(
    "--interval", type=duration, default="1s", show_default=True, metavar="DURATION",
    help="How often to draw.",
)  # fmt: skip
@json_option
def top(interval: Duration, *, once: bool, as_json: bool) -> None:
    """Watch everything live; q or Ctrl-C leaves."""
    with connected() as client:
        if as_json:
            picture = take(client)
            print_object({name: getattr(picture, name) for name in _PARTS})
        elif once or not sys.stdout.isatty():
            screen = console()
            put(screen, draw(take(client), screen.width, None))
        else:
            _live(client, max(0.1, interval.seconds))


_PARTS = ("stats", "queues", "workers", "running")


def _live(client: Client, interval_s: float) -> None:
    from rich.live import Live

    screen = console()
    with _keys() as pressed, Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(take(client), screen.width, screen.height), refresh=True)
            if pressed(interval_s):
                return


def draw(picture: Picture, width: int, height: int | None) -> RenderableType:
    """One frame, cut to the height of the screen if there is one."""
    from rich.console import Group

    rows = None if height is None else max(3, height - ROWS_AROUND)
    third = None if rows is None else max(1, rows // 3)
    queue_rows = [queue_row(queue) for queue in picture.queues][:third]
    worker_rows = [worker_row(worker, picture.at_ms) for worker in picture.workers][:third]
    left = None if rows is None else max(1, rows - len(queue_rows) - len(worker_rows))
    job_rows = [job_row(job, picture.at_ms) for job in picture.running][:left]
    blank = rich_text("")
    parts: list[RenderableType] = [*(rich_text(line) for line in figures(picture)), blank]
    if queue_rows:
        parts += [table(QUEUE_COLUMNS, queue_rows, width), blank]
    if worker_rows:
        parts += [table(WORKER_COLUMNS, worker_rows, width), blank]
    else:
        parts += [rich_text("no workers. Start one with: rota worker"), blank]
    parts.append(
        table(JOB_COLUMNS, job_rows, width) if job_rows else rich_text("nothing is running")
    )
    return Group(*parts)


def figures(picture: Picture) -> Iterator[str]:
    """The lines at the top."""
    stats = picture.stats
    yield f"rota {stats.version} at {picture.url}, up {age(stats.started_at, picture.at_ms)}"
    live = [f"{count(stats.jobs.get(status, 0))} {status}" for status in LIVE]
    ended = [f"{count(n)} {status}" for status, n in stats.jobs.items() if status not in LIVE]
    yield "jobs: " + ", ".join(live + ended)
    yield ", ".join(
        f"{kind} {resource_line(kind, has)}"
        for kind, has in stats.resources.items()
        if has.get("capacity")
    )


@contextmanager
def _keys() -> Iterator[_Pressed]:
    """Reads single keys while the view is up; where that cannot be, Ctrl-C still leaves."""
    if not sys.stdin.isatty():
        yield _Pressed(readable=False)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _Pressed(readable=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class _Pressed:
    """Waits a moment for the key that leaves."""

    readable: bool

    def __call__(self, wait_s: float) -> bool:
        ready, _, _ = select.select([sys.stdin] if self.readable else [], [], [], wait_s)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x1b", "")
