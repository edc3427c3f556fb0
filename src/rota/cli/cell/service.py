"""Reads the service itself: figures and what changes; and prints completion scripts."""

from __future__ import annotations

import sys

import click

from rota.cli.connect import answer, connected
from rota.cli.options import json_option, now_ms
from rota.cli.render import Cell, console, rich_text, show_facts, status_cell
from rota.cli.text import age, amount, count, local, plain, short, size
from rota.sdk import Event, calls
from rota.wire.service import StatsView


@click.command()
@json_option
def stats(*, as_json: bool) -> None:
    """Print the overall figures."""
    with connected() as client:
        answer(client, calls.stats(), _draw_stats, as_json=as_json)


def _draw_stats(view: StatsView) -> None:
    facts: list[tuple[str, Cell]] = [
        ("version", view.version),
        ("up since", f"{local(view.started_at)} ({age(view.started_at, now_ms())})"),
        ("submitted", count(view.submitted_total)),
        *((status, count(number)) for status, number in view.jobs.items()),
        ("queues", count(view.queues)),
        ("workers", ", ".join(f"{n} {status}" for status, n in view.workers.items()) or "none"),
        *((kind, resource_line(kind, has)) for kind, has in view.resources.items()),
    ]
    show_facts(facts)


def resource_line(kind: str, has: dict[str, float | int]) -> str:
    """`2 / 8 in use`."""
    write = size if kind in ("memory", "storage") else amount
    return f"{write(has.get('used', 0))} / {write(has.get('capacity', 0))} in use"


@click.command()
@click.option("--after", metavar="EVENT_ID", help="Go on after this event.")
@click.option("--kind", "-k", multiple=True, help="Only job, execution, worker or queue.")
@click.option("--job", metavar="ID", help="Only of this job, by its full id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
def stream(after: str | None, kind: tuple[str, ...], job: str | None, *, as_json: bool) -> None:
    """Print every state change as it happens, until Ctrl-C."""
    with connected() as client:
        for event in client.stream(after=after):
            if event.kind == "reset":
                click.echo("rota: some changes are no longer kept and were missed", err=True)
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
