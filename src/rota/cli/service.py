"""Shows the service: statistics, its servers, changes as they happen, a live view."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rota.cli.connect import answer, connected
from rota.cli.options import duration, json_option
from rota.cli.render import (
    Cell,
    Column,
    Columns,
    Styled,
    age,
    amount,
    console,
    count,
    local,
    plain,
    plural,
    print_object,
    put,
    rich_text,
    short,
    show_facts,
    show_table,
    size_text,
    status_cell,
    table,
)
from rota.cli.views import (
    JOB_COLUMNS,
    QUEUE_COLUMNS,
    WORKER_COLUMNS,
)
from rota.sdk import Client, Event, JobSearch, calls
from rota.wire.formats import Duration
from rota.wire.jobs import JobView
from rota.wire.queues import QueueView
from rota.wire.service import ClusterView, LagView, NodeView, StatsView
from rota.wire.workers import WorkerView

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@json_option
def stats(*, as_json: bool) -> None:
    """Print statistics of the service."""
    with connected() as client:
        answer(client, calls.stats(), _draw_stats, as_json=as_json)


def _draw_stats(view: StatsView) -> None:
    facts: list[tuple[str, Cell]] = [
        ("version", view.version),
        ("up since", f"{local(view.started_at)} ({age(view.started_at)})"),
        ("submitted", count(view.submitted_total)),
        *((status, count(number)) for status, number in view.jobs.items()),
        ("queues", count(view.queues)),
        ("workers", ", ".join(f"{n} {status}" for status, n in view.workers.items()) or "none"),
        *((kind, resource_line(kind, has)) for kind, has in view.resources.items()),
    ]
    show_facts(facts)


def resource_line(kind: str, has: dict[str, float | int]) -> str:
    """Writes `2 / 8 in use`."""
    write = size_text if kind in ("memory", "storage") else amount
    return f"{write(has.get('used', 0))} / {write(has.get('capacity', 0))} in use"


@click.command()
@click.option("--after", metavar="EVENT_ID", help="Continue after this event.")
@click.option(
    "--kind", "-k", multiple=True, help="Only these kinds: job, execution, worker, queue …"
)
@click.option("--job", metavar="ID", help="Only of this job (full id).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def stream(after: str | None, kind: tuple[str, ...], job: str | None, *, as_json: bool) -> None:
    """Print every state change as it happens, until Ctrl-C."""
    with connected() as client:
        for event in client.stream(after=after):
            if event.kind == "reset":
                click.echo(
                    "rota: some changes were missed: the server no longer has them", err=True
                )
                continue
            change = event.change
            if kind and change.kind not in kind:
                continue
            if job is not None and job not in (change.id, change.job_id):
                continue
            if as_json:
                sys.stdout.write(event.data.decode() + "\n")
            else:
                _draw_change(event)
            sys.stdout.flush()


def _draw_change(event: Event) -> None:
    change = event.change
    line = rich_text(f"{local(change.at)[11:]} {change.kind:<9} {short(change.id):<8} ")
    line.append_text(rich_text(status_cell(change.status)))
    rest = (change.name, change.queue, change.reason)
    line.append(plain("".join(f"  {text}" for text in rest if text)))
    console().print(line, soft_wrap=True)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash:  rota completion bash > ~/.local/share/bash-completion/completions/rota
      zsh:   rota completion zsh > "${fpath[1]}/_rota"
      fish:  rota completion fish > ~/.config/fish/completions/rota.fish
    """
    from click.shell_completion import get_completion_class

    from rota.cli.main import tree

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(tree, {}, "rota", "_ROTA_COMPLETE").source())


NODE_COLUMNS: Columns[NodeView] = (
    Column("NODE", lambda one: plain(one.node)),
    Column("ROLE", lambda one: Styled(plain(one.role), "green" if _leads(one) else "dim")),
    Column(
        "STATUS", lambda one: Styled(plain(one.status), "green" if one.status == "up" else "red")
    ),
    Column("LAG", lambda one: "" if _leads(one) else _lag(one.lag), right=True),
    Column("SEEN", lambda one: f"{age(one.last_seen)} ago", right=True),
    Column("UP", lambda one: age(one.started_at), spare=1, right=True),
    Column("VERSION", lambda one: plain(one.version), spare=2),
    Column("ADDRESS", lambda one: plain(one.address), spare=3, cut=True),
)


def _leads(node: NodeView) -> bool:
    return node.role == "leader"


@click.command()
@json_option
def cluster(*, as_json: bool) -> None:
    """Show the servers, which one leads, and how durable accepted jobs are."""
    with connected() as client:
        answer(client, calls.cluster(), _draw_cluster, as_json=as_json)


def _draw_cluster(view: ClusterView) -> None:
    leader: Cell = plain(view.leader) if view.leader else Styled("none: no server leads", "red")
    facts: list[tuple[str, Cell]] = [
        ("leader", leader),
        ("epoch", str(view.epoch)),
        ("durability", plain(view.durability)),
        *_loss_facts(view),
        *(("warning", Styled(plain(one), "yellow")) for one in view.warnings),
    ]
    show_facts(facts)
    click.echo()
    show_table(NODE_COLUMNS, view.nodes, empty="no servers")


def _loss_facts(view: ClusterView) -> list[tuple[str, Cell]]:
    if not view.losses:
        return []
    newest = view.losses[-1]
    text = f"{plural(view.lost_records, 'record')} in {plural(len(view.losses), 'failover')}"
    return [("lost", Styled(f"{text}, the last at {local(newest.at)}", "yellow"))]


def _lag(lag: LagView) -> str:
    if not lag.seconds:
        return "none"
    return f"{lag.records} records, {lag.seconds:.1f} s"


LIVE = ("running", "cancelling", "queued", "pending")
JOBS_SHOWN = 100
ROWS_AROUND = 12
"""Lines of a screen that are not rows of a table: figures, headings and blanks."""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """Status that one frame shows."""

    url: str
    stats: StatsView
    queues: list[QueueView]
    workers: list[WorkerView]
    running: list[JobView]


def read_status(client: Client) -> LiveStatus:
    """Asks the server for everything."""
    search = JobSearch(status=("running", "cancelling"), limit=JOBS_SHOWN)
    workers = [worker for worker in client.workers() if worker.status != "offline"]
    running = client.jobs_page(search).items
    return LiveStatus(client.endpoint.url, client.stats(), client.queues(), workers, running)


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--interval", type=duration, default="1s", show_default=True, metavar="DURATION",
    help="Refresh interval.",
)  # fmt: skip
@json_option
def top(interval: Duration, *, once: bool, as_json: bool) -> None:
    """Show jobs, queues and workers live; q or Ctrl-C exits."""
    with connected() as client:
        if as_json:
            status = read_status(client)
            print_object({name: getattr(status, name) for name in _PARTS})
        elif once or not sys.stdout.isatty():
            screen = console()
            put(screen, draw_top(read_status(client), screen.width, None))
        else:
            _live(client, max(0.1, interval.seconds))


_PARTS = ("stats", "queues", "workers", "running")


def _live(client: Client, interval_s: float) -> None:
    from rich.live import Live

    screen = console()
    with _keys() as pressed, Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw_top(read_status(client), screen.width, screen.height), refresh=True)
            if pressed(interval_s):
                return


def draw_top(status: LiveStatus, width: int, height: int | None) -> RenderableType:
    """Draws one frame, cut to the height of the terminal if there is one."""
    from rich.console import Group

    rows = None if height is None else max(3, height - ROWS_AROUND)
    third = None if rows is None else max(1, rows // 3)
    queues, workers = status.queues[:third], status.workers[:third]
    left = None if rows is None else max(1, rows - len(queues) - len(workers))
    running = status.running[:left]
    blank = rich_text("")
    parts: list[RenderableType] = [*(rich_text(line) for line in top_lines(status)), blank]
    if queues:
        parts += [table(QUEUE_COLUMNS, queues, width), blank]
    if workers:
        parts += [table(WORKER_COLUMNS, workers, width), blank]
    else:
        parts += [rich_text("no workers. Start one with: rota worker"), blank]
    parts.append(table(JOB_COLUMNS, running, width) if running else rich_text("nothing is running"))
    return Group(*parts)


def top_lines(status: LiveStatus) -> Iterator[str]:
    """Writes the lines at the top."""
    stats = status.stats
    yield f"rota {stats.version} at {status.url}, up {age(stats.started_at)}"
    live = [f"{count(stats.jobs.get(word, 0))} {word}" for word in LIVE]
    ended = [f"{count(n)} {word}" for word, n in stats.jobs.items() if word not in LIVE]
    yield "jobs: " + ", ".join(live + ended)
    yield ", ".join(
        f"{kind} {resource_line(kind, has)}"
        for kind, has in stats.resources.items()
        if has.get("capacity")
    )


@contextmanager
def _keys() -> Iterator[_KeyPressed]:
    """Reads single keys while the view is up; where that cannot be, Ctrl-C still leaves."""
    if not sys.stdin.isatty():
        yield _KeyPressed(readable=False)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _KeyPressed(readable=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class _KeyPressed:
    """Waits a moment for the key that leaves."""

    readable: bool

    def __call__(self, wait_s: float) -> bool:
        ready, _, _ = select.select([sys.stdin] if self.readable else [], [], [], wait_s)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x1b", "")
