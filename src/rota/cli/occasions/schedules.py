"""Lists schedules, shows what became of their instants, makes, changes, runs and removes them."""

from __future__ import annotations

from typing import Any

import click

from rota.cli import offers
from rota.cli.cell.queues import confirm
from rota.cli.connect import answer, connected
from rota.cli.jobs.spec import retry_of
from rota.cli.jobs.tasks import TaskOptions, read_json, run_of
from rota.cli.occasions.deploying import draw_deployed, load_app
from rota.cli.occasions.schedule_views import (
    FORESEEN_COLUMNS,
    LEDGER_COLUMNS,
    SCHEDULE_COLUMNS,
    foreseen_row,
    ledger_row,
    schedule_facts,
    schedule_row,
)
from rota.cli.occasions.timing import timing_of, timing_options
from rota.cli.options import duration, json_option, pair, past
from rota.cli.problems import Failure
from rota.cli.render import print_object, show_facts, show_table, tell
from rota.cli.text import plain, plural
from rota.sdk import Client, LedgerSearch
from rota.sdk.methods import schedule_calls as calls
from rota.wire.queues import CountAnswer
from rota.wire.schedules import (
    BackfillAnswer,
    OccurrencePage,
    OccurrenceView,
    PreviewAnswer,
    SchedulePage,
    ScheduleView,
)

LEDGER_SHOWN = 20
NEXT_SHOWN = 5


@click.group(invoke_without_command=True)
@click.option("--owner", help="Those that this program deployed.")
@click.option("--tenant", help="Of this tenant.")
@json_option
@click.pass_context
def schedules(ctx: click.Context, *, owner: str | None, tenant: str | None, as_json: bool) -> None:
    """List schedules, make one, or act on one: show, update, pause, trigger, backfill, delete.

    A schedule is named by its name or its id.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.schedules(owner=owner, tenant=tenant)
        if as_json:
            print_object(SchedulePage(found, None))
            return
        show_table(SCHEDULE_COLUMNS, [schedule_row(one) for one in found], empty="no schedules yet")


def find(client: Client, typed: str) -> ScheduleView:
    """The schedule that is meant: by its name, its id, or a part of the id."""
    named = client.schedules(name=typed) if typed else []
    if not named:
        bare = typed.replace("-", "").lower()
        named = [
            one
            for one in client.schedules()
            if len(bare) >= 6
            and (
                one.schedule_id.replace("-", "").startswith(bare)
                or one.schedule_id.replace("-", "").endswith(bare)
            )
        ]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Failure(f"there is no schedule {plain(typed)!r}; see: rota schedules")
    ids = ", ".join(one.schedule_id for one in named[:4])
    raise Failure(f"{plain(typed)!r} fits {len(named)} schedules: {ids}")


def _draw(schedule: ScheduleView) -> None:
    show_facts(schedule_facts(schedule))


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@click.option("--outcome", "-o", multiple=True, help="Only fired, late, caught_up or skipped ones.")
@click.option("--after", type=past, metavar="TIME", help="Instants after this, or so long ago.")
@click.option("--before", type=past, metavar="TIME", help="Instants before this.")
@click.option("--limit", type=click.IntRange(1, 1000), default=LEDGER_SHOWN, show_default=True)
@json_option
def show(name: str, *, limit: int, as_json: bool, **given: Any) -> None:
    """Show a schedule, its next instants, and what became of the last ones: why did it not run?"""
    search = LedgerSearch(
        outcome=given["outcome"],
        after=None if given["after"] is None else given["after"].isoformat(),
        before=None if given["before"] is None else given["before"].isoformat(),
        limit=limit,
    )
    with connected() as client:
        schedule = find(client, name)
        ledger = client.occurrences(schedule.schedule_id, search)
        coming = client.preview_schedule(schedule.schedule_id, count=NEXT_SHOWN)
    if as_json:
        print_object({"schedule": schedule, "next": coming, "occurrences": ledger.items})
        return
    _draw(schedule)
    click.echo("\nnext" + (" (paused: they will be skipped)" if schedule.paused else ""))
    rows = [foreseen_row(one) for one in coming]
    show_table(FORESEEN_COLUMNS, rows, empty="nothing more is due by itself")
    click.echo("\nlast")
    _draw_ledger(schedule, ledger)


def _draw_ledger(schedule: ScheduleView, ledger: OccurrencePage) -> None:
    rows = [ledger_row(one, schedule.timezone) for one in ledger.items]
    show_table(LEDGER_COLUMNS, rows, empty="nothing has been due yet")


@schedules.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@timing_options
@click.option("--paused", is_flag=True, help="Make it, and let it wait.")
@click.option("--function", metavar="NAME", help="Run this function of a worker's app.")
@click.option("--args", metavar="JSON|@FILE", help="A list: arguments for the function.")
@click.option("--kwargs", metavar="JSON|@FILE", help="An object: its named arguments.")
@click.option("--http", metavar="URL", help="Send a request.")
@click.option("--noop", is_flag=True, help="Run nothing.")
@click.option("--env", "-e", multiple=True, type=pair, metavar="KEY=VALUE", help="Environment.")
@click.option("--queue", "-q", shell_complete=offers.queues, help="The queue its jobs wait in.")
@click.option("--priority", "-p", type=int, help="Priority of its jobs.")
@click.option(
    "--timeout", "-t", type=duration, metavar="DURATION", help="Stop a run after so long."
)
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Tries after the first.")
@click.option("--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE", help="A label.")
@click.option("--job", metavar="JSON|@FILE", help="Whatever else its jobs have, as POST /jobs.")
@json_option
def create(name: str, *, as_json: bool, **given: Any) -> None:
    """Make a schedule; {{scheduled_at}} and the like are filled into what it runs.

    \b
      rota schedules create report --cron '0 9 * * MON-FRI' --tz Europe/Berlin -- ./report.sh
      rota schedules create sync --every 15m --overlap skip -- ./sync.sh '{{scheduled_at}}'
      rota schedules create clean --cron @daily --function clean --kwargs '{"days": 30}'
    """
    body = {"name": name, **timing_of(given), "job": job_of(given)}
    if given["paused"]:
        body["paused"] = True
    with connected() as client:
        answer(client, calls.create_schedule(body), _draw, as_json=as_json)


def job_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options beside `--job`, which has the rest."""
    rest = read_json(given["job"], "--job") if given["job"] is not None else {}
    if not isinstance(rest, dict):
        raise click.BadParameter("it must be an object", param_hint="'--job'")
    kinds = ("command", "function", "http", "noop")
    run = {}
    if any(given[kind] for kind in kinds) or "task" not in rest:
        options = ("command", "function", "args", "kwargs", "http", "noop", "env")
        run = run_of(TaskOptions(**{option: given[option] for option in options}))
    parts = {
        "queue": given["queue"],
        "priority": given["priority"],
        "timeout": given["timeout"],
        "retry": retry_of(given["retries"], None, None),
        "labels": dict(given["label"]) or None,
    }
    said = {key: value for key, value in parts.items() if value is not None}
    return {"name": "job", **run, **said, **rest}


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@timing_options
@click.option("--patch", metavar="JSON|@FILE", help="A merge patch: whatever else is to change.")
@json_option
def update(name: str, *, as_json: bool, **given: Any) -> None:
    """Change a schedule; what has been decided stays so."""
    patch = timing_of(given)
    if given["patch"] is not None:
        patch |= read_json(given["patch"], "--patch")
    if not patch:
        raise click.UsageError("say what to change: --cron, --tz, --overlap …, or --patch")
    with connected() as client:
        schedule_id = find(client, name).schedule_id
        answer(client, calls.update_schedule(schedule_id, patch), _draw, as_json=as_json)


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@json_option
def pause(name: str, *, as_json: bool) -> None:
    """Let a schedule make no jobs; its instants are recorded as skipped."""
    with connected() as client:
        call = calls.pause_schedule(find(client, name).schedule_id)
        answer(client, call, _draw, as_json=as_json)


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@json_option
def resume(name: str, *, as_json: bool) -> None:
    """Let a schedule go on with its next instant."""
    with connected() as client:
        call = calls.resume_schedule(find(client, name).schedule_id)
        answer(client, call, _draw, as_json=as_json)


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@json_option
def trigger(name: str, *, as_json: bool) -> None:
    """Run a schedule's job now, beside its times."""

    def draw(made: OccurrenceView) -> None:
        click.echo(made.job_id)

    with connected() as client:
        call = calls.trigger_schedule(find(client, name).schedule_id)
        answer(client, call, draw, as_json=as_json)


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--after", type=past, metavar="TIME", help="Later than this; else now.")
@json_option
def preview(name: str, *, count: int, after: Any, as_json: bool) -> None:
    """Print the next instants of a schedule, clock changes marked."""

    def draw(found: PreviewAnswer) -> None:
        show_table(FORESEEN_COLUMNS, [foreseen_row(one) for one in found.items], empty="no more")

    with connected() as client:
        schedule_id, since = find(client, name).schedule_id, after and after.isoformat()
        call = calls.preview_schedule(schedule_id, count=count, after=since)
        answer(client, call, draw, as_json=as_json)


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@click.option(
    "--from", "start", type=past, metavar="TIME", help="The first instant, or so long ago."
)
@click.option("--to", "end", type=past, metavar="TIME", help="The last; else now.")
@click.option("--max-parallel", type=click.IntRange(1), default=1, show_default=True)
@click.option("--priority", type=int, help="Of its runs; else 100 below the schedule's own.")
@click.option("--dry-run", is_flag=True, help="Say what would run, and run nothing.")
@click.option("--cancel", metavar="BACKFILL_ID", help="Call off what is left of a backfill.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def backfill(name: str, *, as_json: bool, **given: Any) -> None:
    """Run a schedule for a range of its past: only what has no run yet, and behind other jobs."""
    with connected() as client:
        schedule = find(client, name)
        if given["cancel"] is not None:
            call_off = calls.cancel_backfill(schedule.schedule_id, given["cancel"])
            answer(client, call_off, _draw_called_off, as_json=as_json)
            return
        body = _backfill_of(given)
        if not given["yes"] and not given["dry_run"]:
            would = client.backfill(schedule.schedule_id, {**body, "dry_run": True})
            _draw_backfill(would)
            confirm(f"Run {plural(would.count, 'job')} of {schedule.name}?")
        body["dry_run"] = given["dry_run"]
        call = calls.backfill(schedule.schedule_id, body)
        answer(client, call, _draw_backfill, as_json=as_json)


def _draw_called_off(done: CountAnswer) -> None:
    click.echo(f"cancelled {plural(done.count, 'job')}")
    if not done.count:
        click.echo("no backfill of this schedule with that id has runs left", err=True)


def _backfill_of(given: dict[str, Any]) -> dict[str, Any]:
    if given["start"] is None:
        raise click.UsageError("say from when: --from 7d, or --from 2026-03-01")
    body = {
        "from": given["start"],
        "to": given["end"] or past("0s"),
        "max_parallel": given["max_parallel"],
        "priority": given["priority"],
    }
    return {name: value for name, value in body.items() if value is not None}


def _draw_backfill(done: BackfillAnswer) -> None:
    rows = [foreseen_row(one) for one in done.items]
    show_table(FORESEEN_COLUMNS, rows, empty="every instant of that range has its run")
    more = done.count - len(done.items)
    if more > 0:
        click.echo(f"… and {more} more")
    if done.already:
        click.echo(f"{plural(done.already, 'instant')} left out: they have a job already")
    if done.backfill_id is not None:
        click.echo(f"backfill {done.backfill_id}: {plural(done.count, 'job')}")


@schedules.command()
@click.argument("name", shell_complete=offers.schedules)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def delete(name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a schedule; its jobs go on."""
    with connected() as client:
        schedule = find(client, name)
        if not yes:
            confirm(f"Remove the schedule {schedule.name}?")
        client.delete_schedule(schedule.schedule_id)
        gone = {"schedule_id": schedule.schedule_id, "name": schedule.name, "deleted": True}
        tell(f"removed {schedule.name}", gone, as_json=as_json)


@schedules.command()
@click.argument("app", metavar="PACKAGE.MODULE:APP")
@click.option("--owner", help="The program's name; else what it is loaded from.")
@json_option
def deploy(app: str, *, owner: str | None, as_json: bool) -> None:
    """Make the schedules of a rota.App just those it declares: @app.cron and @app.every."""
    declared = list(load_app(app).declared.values())
    with connected() as client:
        answer(client, calls.deploy(owner or app, declared), draw_deployed, as_json=as_json)
