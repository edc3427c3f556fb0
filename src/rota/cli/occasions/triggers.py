"""Lists triggers, shows what they made of events, makes, changes, tries and removes them."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from rota.cli import offers
from rota.cli.cell.queues import confirm
from rota.cli.connect import answer, connected
from rota.cli.jobs.tasks import read_json
from rota.cli.occasions.deploying import draw_deployed, load_app
from rota.cli.occasions.schedules import job_of
from rota.cli.options import duration, json_option, pair
from rota.cli.problems import Failure
from rota.cli.render import Cell, Column, Row, Styled, print_object, show_facts, show_table, tell
from rota.cli.text import local, plain, short, span
from rota.cli.views import task_line
from rota.sdk import Client
from rota.sdk.methods import event_calls as calls
from rota.wire.events import ArrivalView
from rota.wire.triggers import TrialAnswer, TriggerPage, TriggerView

LEDGER_SHOWN = 20
COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("EVENT", cut=True),
    Column("FILTER", spare=1, cut=True),
    Column("WAITING", spare=2, right=True),
    Column("OWNER", spare=3, cut=True),
)
LEDGER_COLUMNS = (
    Column("CAME"),
    Column("TYPE", spare=2, cut=True),
    Column("EVENT", cut=True),
    Column("OUTCOME"),
    Column("JOB"),
    Column("WHY", spare=1, cut=True),
)
TRIAL_COLUMNS = (Column("TRIGGER", cut=True), Column("OUTCOME"), Column("WHY", cut=True))
_STYLES = {
    "fired": "green",
    "held": "yellow",
    "paused": "yellow",
    "failed": "red",
    "too_deep": "red",
    "limited": "red",
    "active": "green",
}


def styled(word: str) -> Styled:
    """A status or an outcome in its colour."""
    return Styled(word, _STYLES.get(word, ""))


@click.group(invoke_without_command=True)
@click.option("--owner", help="Those that this program deployed.")
@json_option
@click.pass_context
def triggers(ctx: click.Context, *, owner: str | None, as_json: bool) -> None:
    """List triggers, make one, or act on one: show, update, pause, resume, test, delete.

    A trigger is named by its name or its id.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.triggers(owner=owner)
        if as_json:
            print_object(TriggerPage(found, None))
            return
        show_table(COLUMNS, [_row(one) for one in found], empty="no triggers yet")


def _row(one: TriggerView) -> Row:
    return (
        short(one.trigger_id),
        one.name,
        styled("paused" if one.paused else "active"),
        one.event,
        _filter_text(one.filter),
        str(one.waiting) if one.waiting else "-",
        one.owner or "",
    )


def _filter_text(given: Any) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def find(client: Client, typed: str) -> TriggerView:
    """The trigger that is meant: by its name, its id, or a part of the id."""
    named = client.triggers(name=typed) if typed else []
    bare = typed.replace("-", "").lower()
    if not named and len(bare) >= 6:
        every = [(one, one.trigger_id.replace("-", "")) for one in client.triggers()]
        named = [one for one, flat in every if flat.startswith(bare) or flat.endswith(bare)]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Failure(f"there is no trigger {plain(typed)!r}; see: rota triggers")
    ids = ", ".join(one.trigger_id for one in named[:4])
    raise Failure(f"{plain(typed)!r} fits {len(named)} triggers: {ids}")


def _draw(one: TriggerView) -> None:
    facts: list[tuple[str, Cell | None]] = [
        ("id", one.trigger_id),
        ("name", one.name),
        ("status", styled("paused" if one.paused else "active")),
        ("event", one.event),
        ("filter", _filter_text(one.filter) or None),
        ("gathers", _gathers(one)),
        ("rate", _rate(one)),
        ("waiting", str(one.waiting) if one.waiting else None),
        ("closes", local(one.closes_at) if one.closes_at else None),
        ("runs", task_line(str(one.job["name"]), msgspec.json.encode(one.job["task"]))),
        ("queue", str(one.job["queue"])),
        ("owner", one.owner),
        ("revision", f"{one.revision}, since {local(one.updated_at)}"),
    ]
    show_facts([(name, value) for name, value in facts if value is not None])


def _gathers(one: TriggerView) -> str | None:
    if one.debounce is not None:
        longest = one.debounce.max_wait
        most = f", {span(longest)} at most" if longest is not None else ""
        key = f", by {one.debounce.key}" if one.debounce.key else ""
        return f"until quiet for {span(one.debounce.wait)}, keeps {one.debounce.keep}{most}{key}"
    if one.batch is not None:
        key = f", by {one.batch.key}" if one.batch.key else ""
        return f"{one.batch.size} events, or what came in {span(one.batch.wait)}{key}"
    return None


def _rate(one: TriggerView) -> str | None:
    limit = one.rate_limit
    return None if limit is None else f"{limit.count} jobs in {span(limit.per)}"


@triggers.command()
@click.argument("name", shell_complete=offers.triggers)
@click.option("--outcome", "-o", multiple=True, help="Only fired, filtered, limited … ones.")
@click.option("--limit", type=click.IntRange(1, 1000), default=LEDGER_SHOWN, show_default=True)
@json_option
def show(name: str, *, outcome: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show a trigger, and what it made of the last events: why did it not fire?"""
    with connected() as client:
        found = find(client, name)
        ledger = client.trigger_events(found.trigger_id, outcome=outcome, limit=limit)
    if as_json:
        print_object({"trigger": found, "events": ledger.items})
        return
    _draw(found)
    click.echo("\nevents")
    rows = [_ledger_row(one) for one in ledger.items]
    show_table(LEDGER_COLUMNS, rows, empty="no event of its type has come yet")


def _ledger_row(one: ArrivalView) -> Row:
    return (
        local(one.received_at),
        one.type,
        one.event_id,
        styled(one.outcome),
        short(one.job_id),
        "" if one.outcome == "fired" else one.message,
    )


@triggers.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--from", "source", metavar="JSON|@FILE", help="The whole trigger, as POST /triggers."
)
@click.option("--on", "event", metavar="TYPE", help="A type of event, `prefix.*`, or `*`.")
@click.option(
    "--where", metavar="FILTER", help="Only such events: data.size > 1000 and has(data.name)"
)
@click.option(
    "--debounce",
    type=duration,
    metavar="DURATION",
    help="Wait until no event came for so long; take the last one.",
)
@click.option("--batch", type=click.IntRange(1), metavar="N", help="One job for so many events.")
@click.option("--rate", metavar="N/TIME", help="At most so many jobs: 10/1m.")
@click.option("--paused", is_flag=True, help="Make it, and let it wait.")
@click.option("--function", metavar="NAME", help="Run this function of a worker's app.")
@click.option("--args", metavar="JSON|@FILE", help="A list: arguments for the function.")
@click.option("--kwargs", metavar="JSON|@FILE", help="An object: its named arguments.")
@click.option("--http", metavar="URL", help="Send a request.")
@click.option("--noop", is_flag=True, help="Run nothing.")
@click.option("--env", "-e", multiple=True, type=pair, metavar="KEY=VALUE", help="Environment.")
@click.option("--queue", "-q", shell_complete=offers.queues, help="The queue its jobs wait in.")
@click.option("--priority", "-p", type=int, help="Priority of its jobs.")
@click.option("--timeout", "-t", type=duration, metavar="DURATION", help="Stop a run after this.")
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Tries after the first.")
@click.option("--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE", help="A label.")
@click.option("--job", metavar="JSON|@FILE", help="Whatever else its jobs have, as POST /jobs.")
@json_option
def create(name: str, *, as_json: bool, **given: Any) -> None:
    """Make a trigger; {{event.data.name}} and the like are filled into what it runs.

    \b
      rota triggers create scan --on object.uploaded -- ./scan.sh '{{event.data.name}}'
      rota triggers create alarm --on rota.job.failed --where "data.queue == 'billing'" -- ./page.sh
      rota triggers create load --on 'row.*' --batch 100 --function load
    """
    body = {"name": name, **_given_in(given)} if given["source"] else _body(name, given)
    with connected() as client:
        answer(client, calls.create_trigger(body), _draw, as_json=as_json)


def _given_in(given: dict[str, Any]) -> dict[str, Any]:
    body = read_json(given["source"], "--from")
    if not isinstance(body, dict):
        raise click.BadParameter("it must be an object", param_hint="'--from'")
    return body


def _body(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if given["event"] is None:
        raise click.UsageError("say which events: --on TYPE, or --from JSON|@FILE")
    parts = {
        "filter": given["where"],
        "debounce": given["debounce"],
        "batch": given["batch"],
        "rate_limit": _rate_of(given["rate"]),
        "paused": given["paused"] or None,
    }
    said = {key: value for key, value in parts.items() if value is not None}
    return {"name": name, "event": given["event"], **said, "job": job_of(given)}


def _rate_of(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    count, slash, per = text.partition("/")
    if not slash or not count.isdecimal():
        raise click.BadParameter("write it like 10/1m", param_hint="'--rate'")
    return {"count": int(count), "per": per}


@triggers.command()
@click.argument("name", shell_complete=offers.triggers)
@click.argument("patch", metavar="JSON|@FILE")
@json_option
def update(name: str, patch: str, *, as_json: bool) -> None:
    """Change a trigger, by a merge patch: '{"filter": "data.size > 10"}'."""
    with connected() as client:
        trigger_id = find(client, name).trigger_id
        call = calls.update_trigger(trigger_id, read_json(patch, "patch"))
        answer(client, call, _draw, as_json=as_json)


@triggers.command()
@click.argument("name", shell_complete=offers.triggers)
@json_option
def pause(name: str, *, as_json: bool) -> None:
    """Let a trigger make no jobs; events are recorded as paused."""
    with connected() as client:
        call = calls.pause_trigger(find(client, name).trigger_id)
        answer(client, call, _draw, as_json=as_json)


@triggers.command()
@click.argument("name", shell_complete=offers.triggers)
@json_option
def resume(name: str, *, as_json: bool) -> None:
    """Let a trigger go on with the next event."""
    with connected() as client:
        call = calls.resume_trigger(find(client, name).trigger_id)
        answer(client, call, _draw, as_json=as_json)


@triggers.command()
@click.argument("event", metavar="JSON|@FILE")
@click.option("--only", metavar="NAME", shell_complete=offers.triggers, help="This trigger only.")
@json_option
def test(event: str, *, only: str | None, as_json: bool) -> None:
    """Say what triggers would make of an event; nothing happens."""
    body = read_json(event, "event")
    if not isinstance(body, dict):
        raise click.BadParameter("it must be an object", param_hint="'event'")
    body = {"id": "test", "source": "/cli", **body}

    def draw(tried: TrialAnswer) -> None:
        rows = [(one.name, styled(one.outcome), one.message) for one in tried.items]
        show_table(TRIAL_COLUMNS, rows, empty="no trigger is for events of this type")

    with connected() as client:
        trigger_id = None if only is None else find(client, only).trigger_id
        answer(client, calls.try_event(body, trigger_id=trigger_id), draw, as_json=as_json)


@triggers.command()
@click.argument("name", shell_complete=offers.triggers)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def delete(name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a trigger; its jobs go on, events that wait in it are dropped."""
    with connected() as client:
        found = find(client, name)
        if not yes:
            confirm(f"Remove the trigger {found.name}?")
        client.delete_trigger(found.trigger_id)
        gone = {"trigger_id": found.trigger_id, "name": found.name, "deleted": True}
        tell(f"removed {found.name}", gone, as_json=as_json)


@triggers.command()
@click.argument("app", metavar="PACKAGE.MODULE:APP")
@click.option("--owner", help="The program's name; else what it is loaded from.")
@json_option
def deploy(app: str, *, owner: str | None, as_json: bool) -> None:
    """Make the triggers of a rota.App just those it declares with @app.on."""
    declared = list(load_app(app).reactions.values())
    with connected() as client:
        call = calls.deploy_triggers(owner or app, declared)
        answer(client, call, draw_deployed, as_json=as_json)
