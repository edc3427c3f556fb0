"""`rota submit --dry-run`: says what would become of jobs, and submits none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rota.cli.deadlines import deadline_line
from rota.cli.options import now_ms
from rota.cli.render import print_object
from rota.cli.text import age, local
from rota.sdk import Client
from rota.wire.why import DryRunBatchView, DryRunView


def foretell(client: Client, jobs: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Prints a line for each job; 1 if one of them would never start."""
    is_one = len(jobs) == 1
    views = [client.submit(jobs[0], dry_run=True)] if is_one else client.dry_run_batch(jobs)
    if as_json:
        print_object(views[0] if len(views) == 1 else DryRunBatchView(views))
    else:
        for view in views:
            _draw(view)
    return 1 if any(view.verdict == "never" for view in views) else 0


def _draw(view: DryRunView) -> None:
    now, start = now_ms(), view.estimated_start
    lead = f"{view.ref}: " if view.ref else ""
    if view.verdict == "later" and start.at is not None:
        why = f", because {view.causes[0].message}" if view.causes else ""
        click.echo(f"{lead}would start at about {local(start.at)} ({age(start.at, now)}){why}")
    else:
        click.echo(f"{lead}{view.message}")
    if start.low is not None and start.high is not None and start.low != start.high:
        click.echo(f"  likely from {age(start.low, now)} to {age(start.high, now)}")
    for cause in view.causes[1:]:
        click.echo(f"  and {cause.message}")
    if view.deadline is not None:
        click.echo(f"  due {deadline_line(view.deadline, now)}")
