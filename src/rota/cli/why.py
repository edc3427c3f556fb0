"""Explains why a job is not running, and (`rota submit --dry-run`) when one would start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from rota.cli import id_lookup
from rota.cli.connect import answer, connected
from rota.cli.id_lookup import job_id
from rota.cli.options import json_option
from rota.cli.render import (
    Styled,
    age,
    console,
    local,
    now_ms,
    percent,
    plural,
    print_object,
    rich_text,
    short,
    since_s,
    span,
    status_cell,
)
from rota.cli.views import deadline_line
from rota.sdk import Client, calls
from rota.wire.why import (
    CauseView,
    DryRunBatchView,
    DryRunView,
    EstimateView,
    PhaseView,
    PositionView,
    WhyView,
)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Shown by its end, which any command takes."""
_LEAD = 7
"""The words on the left are no longer than this."""
_METHODS = {
    "known_times": "from known times",
    "reservation": "from its reservation",
    "forward_run": "from a forecast of the scheduler",
    "fluid": "from the number of jobs ahead",
}


@click.command()
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@json_option
def why(job: str, *, as_json: bool) -> None:
    """Explain why a job is not running, when it will start, and what would help."""
    with connected() as client:
        answer(client, calls.why(job_id(client, job)), draw_why, as_json=as_json)


def draw_why(view: WhyView) -> None:
    """Prints the answer, then its causes."""
    screen = console()
    message = _UUID.sub(lambda found: short(found[0]), view.cause.message)
    screen.print(rich_text(status_cell(view.status)), rich_text(message), soft_wrap=True)
    if view.estimated_start.method != "started":
        for number, line in enumerate(start_lines(view.estimated_start)):
            _say("" if number else "starts", line)
    _figures(view.cause)
    for cause in view.others:
        _say("and", cause.message)
        _figures(cause)
    for relief in view.would_help:
        then = ": then it starts at once" if relief.enough else ""
        when = relief.figures.get("at") or relief.figures.get("until")
        due = f" ({age(when)})" if isinstance(when, str) else ""
        _say("help", f"{relief.message}{due}{then}")
        _named(relief.figures)
    if view.position is not None:
        _say("queue", _position(view.position))
    if view.deadline is not None:
        _say("due", deadline_line(view.deadline))
    if view.history:
        _say("past", "; ".join(_history_entry(one) for one in view.history))


def start_lines(estimate: EstimateView) -> Iterator[str]:
    """Says when it starts, how sure that is, and how it is known."""
    if estimate.method == "never":
        yield "never, unless something changes"
    elif estimate.at is None:
        yield "unknown"
    elif since_s(estimate.at, now_ms()) >= 0:
        yield "as soon as a worker with free capacity polls"
    else:
        yield f"at about {local(estimate.at)} ({age(estimate.at)}){_where(estimate)}"
        low, high = estimate.low, estimate.high
        if low != high:
            yield f"likely from {age(low)} to {age(high)}: {_how(estimate)}"


def _where(estimate: EstimateView) -> str:
    return "" if estimate.worker_id is None else f" on worker {short(estimate.worker_id)}"


def _how(estimate: EstimateView) -> str:
    how, past = _METHODS.get(estimate.method, estimate.method), estimate.accuracy
    if past is None:
        return f"{how}; accuracy not known yet"
    return f"{how}; {percent(past.inside)} of {plural(past.starts, 'earlier estimate')} were right"


def _position(position: PositionView) -> str:
    about = "" if position.exact else "about "
    parts = [f"{about}{position.ahead} of {plural(position.waiting, 'similar job')} before it"]
    if position.starts_before is not None:
        parts.append(f"{plural(position.starts_before, 'job')} in total before it")
    if position.tenants_ahead:
        parts.append(f"{plural(position.tenants_ahead, 'tenant')} served first")
    return "; ".join(parts)


def _history_entry(phase: PhaseView) -> str:
    reason = f" ({phase.reason})" if phase.reason else ""
    where = f" on {short(phase.worker_id)}" if phase.worker_id else ""
    lasts = " so far" if phase.until is None else ""
    return f"{phase.what} {span(float(phase.seconds))}{lasts}{where}{reason}"


def _say(lead: str, text: str) -> None:
    line = rich_text(Styled(lead.ljust(_LEAD), "bold"))
    line.append_text(rich_text(_UUID.sub(lambda found: short(found[0]), text)))
    console().print(line, soft_wrap=True)


def _figures(cause: CauseView) -> None:
    for name, value in cause.figures.items():
        _dim(f"{name.replace('_', ' ')}: {_figure(value)}")


def _named(figures: dict[str, Any]) -> None:
    """Names the jobs that hold what it waits for."""
    jobs = figures.get("jobs")
    if isinstance(jobs, list) and len(jobs) > 1:
        _dim("jobs: " + ", ".join(short(str(one)) for one in jobs))


def _dim(text: str) -> None:
    console().print(rich_text(Styled(f"  {text}", "dim")), soft_wrap=True)


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_figure(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_figure(one) for one in value)
    return str(value)


def draw_dry_run(client: Client, jobs: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Prints a line for each job; 1 if one of them would never start."""
    is_one = len(jobs) == 1
    views = [client.submit(jobs[0], dry_run=True)] if is_one else client.dry_run_batch(jobs)
    if as_json:
        print_object(views[0] if len(views) == 1 else DryRunBatchView(views))
    else:
        for view in views:
            _draw_dry_run(view)
    return 1 if any(view.verdict == "never" for view in views) else 0


def _draw_dry_run(view: DryRunView) -> None:
    start = view.estimated_start
    lead = f"{view.ref}: " if view.ref else ""
    if view.verdict == "later" and start.at is not None:
        why = f", because {view.causes[0].message}" if view.causes else ""
        click.echo(f"{lead}would start at about {local(start.at)} ({age(start.at)}){why}")
    else:
        click.echo(f"{lead}{view.message}")
    if start.low is not None and start.high is not None and start.low != start.high:
        click.echo(f"  likely from {age(start.low)} to {age(start.high)}")
    for cause in view.causes[1:]:
        click.echo(f"  and {cause.message}")
    if view.deadline is not None:
        click.echo(f"  due {deadline_line(view.deadline)}")
