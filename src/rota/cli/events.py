"""Commands about triggers and events: list, create, try and deploy triggers; list, send and listen
to events; webhook endpoints.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.cli import id_lookup
from rota.cli.id_lookup import by_name_or_id
from rota.cli.nouns import Noun, Verb, listing, removed
from rota.cli.options import duration, read_json, read_object, without_none
from rota.cli.problems import Failure
from rota.cli.render import Column, Columns, Styled, local, short, show_facts, show_table, span
from rota.cli.schedule_spec import draw_deployed, job_of, job_options, load_app
from rota.cli.views import task_line
from rota.sdk import Client
from rota.sdk.calls import Call
from rota.sdk.methods import event_calls as calls
from rota.wire.events import (
    ArrivalView,
    EventOutcome,
    EventPage,
    EventView,
    HookPage,
    HookView,
    TrialAnswer,
    TrialView,
    TriggerPage,
    TriggerView,
)

LEDGER_SHOWN = 20
_STYLES = {
    "fired": "green",
    "held": "yellow",
    "paused": "yellow",
    "failed": "red",
    "too_deep": "red",
    "limited": "red",
    "active": "green",
}
TRIGGER_COLUMNS: Columns[TriggerView] = (
    Column("ID", lambda one: short(one.trigger_id)),
    Column("NAME", lambda one: one.name, cut=True),
    Column("STATUS", lambda one: _status(one)),
    Column("EVENT", lambda one: one.event, cut=True),
    Column("FILTER", lambda one: _filter_text(one.filter), spare=1, cut=True),
    Column("WAITING", lambda one: str(one.waiting) if one.waiting else "-", spare=2, right=True),
    Column("OWNER", lambda one: one.owner or "", spare=3, cut=True),
)
LEDGER_COLUMNS: Columns[ArrivalView] = (
    Column("RECEIVED", lambda one: local(one.received_at)),
    Column("TYPE", lambda one: one.type, spare=2, cut=True),
    Column("EVENT", lambda one: one.event_id, cut=True),
    Column("OUTCOME", lambda one: styled(one.outcome)),
    Column("JOB", lambda one: short(one.job_id)),
    Column("WHY", lambda one: "" if one.outcome == "fired" else one.message, spare=1, cut=True),
)
TRIAL_COLUMNS: Columns[TrialView] = (
    Column("TRIGGER", lambda one: one.name, cut=True),
    Column("OUTCOME", lambda one: styled(one.outcome)),
    Column("WHY", lambda one: one.message, cut=True),
)


def styled(word: str) -> Styled:
    """Returns a status or an outcome in its colour."""
    return Styled(word, _STYLES.get(word, ""))


def _status(one: TriggerView) -> Styled:
    return styled("paused" if one.paused else "active")


def _filter_text(given: Any) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _find_trigger(client: Client, typed: str) -> TriggerView:
    return by_name_or_id("trigger", typed, client.triggers, lambda one: one.trigger_id)


def _draw_triggers(page: TriggerPage) -> None:
    show_table(TRIGGER_COLUMNS, page.items, empty="no triggers yet")


def _draw_trigger(one: TriggerView) -> None:
    show_facts(
        [
            ("id", one.trigger_id),
            ("name", one.name),
            ("status", _status(one)),
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
    )


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


def _trigger_history(
    client: Client, found: TriggerView, *, outcome: tuple[str, ...], limit: int
) -> dict[str, Any]:
    ledger = client.trigger_events(found.trigger_id, outcome=outcome, limit=limit)
    return {"trigger": found, "events": ledger.items}


def _draw_history(found: dict[str, Any]) -> None:
    _draw_trigger(found["trigger"])
    click.echo("\nevents")
    show_table(LEDGER_COLUMNS, found["events"], empty="no event of its type has been received yet")


def _new_trigger(*, name: str, **given: Any) -> dict[str, Any]:
    if given["source"]:
        return {"name": name, **read_object(given["source"], "--from")}
    if given["event"] is None:
        raise click.UsageError("name the events: --on TYPE, or --from JSON|@FILE")
    parts = {
        "filter": given["where"],
        "debounce": given["debounce"],
        "batch": given["batch"],
        "rate_limit": _rate_of(given["rate"]),
        "paused": given["paused"] or None,
    }
    return {"name": name, "event": given["event"], **without_none(parts), "job": job_of(given)}


def _rate_of(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    count, slash, per = text.partition("/")
    if not slash or not count.isdecimal():
        raise click.BadParameter("write it like 10/1m", param_hint="'--rate'")
    return {"count": int(count), "per": per}


def _event_to_try(*, event: str, only: str | None) -> tuple[dict[str, Any], str | None]:
    return {"id": "test", "source": "/cli", **read_object(event, "event")}, only


def _try(client: Client, asked: tuple[dict[str, Any], str | None]) -> Call[TrialAnswer]:
    event, only = asked
    trigger_id = None if only is None else _find_trigger(client, only).trigger_id
    return calls.try_event(event, trigger_id=trigger_id)


def _draw_trial(tried: TrialAnswer) -> None:
    show_table(TRIAL_COLUMNS, tried.items, empty="no trigger matches events of this type")


def _declared(app: str, owner: str | None) -> tuple[str, list[Any]]:
    return owner or app, list(load_app(app).reactions.values())


CREATE_HELP = """Create a trigger; placeholders such as {{event.data.name}} in its job are filled.

\b
  rota triggers create scan --on object.uploaded -- ./scan.sh '{{event.data.name}}'
  rota triggers create alarm --on rota.job.failed --where "data.queue == 'billing'" -- ./page.sh
  rota triggers create load --on 'row.*' --batch 100 --function load
"""

triggers = Noun(
    name="triggers",
    help="""List triggers, create one, or act on one: show, update, pause, resume, test, delete.

    Name a trigger by its name or id.
    """,
    default=listing(
        params=(click.option("--owner", help="Only those that this app deployed."),),
        fetch=lambda client, owner: TriggerPage(client.triggers(owner=owner), None),
        draw=_draw_triggers,
    ),
    complete=id_lookup.complete_triggers,
    find=_find_trigger,
    id_of=lambda one: one.trigger_id,
    verbs=(
        Verb(
            "show",
            "Show a trigger with its decisions about the last events: why did it not fire?",
            params=(
                click.option(
                    "--outcome",
                    "-o",
                    multiple=True,
                    help="Only these outcomes: fired, filtered, limited …",
                ),
                click.option(
                    "--limit", type=click.IntRange(1, 1000), default=LEDGER_SHOWN, show_default=True
                ),
            ),
            fetch=_trigger_history,
            draw=_draw_history,
        ),
        Verb(
            "create",
            CREATE_HELP,
            calls.create_trigger,
            _draw_trigger,
            names_one=False,
            params=(
                click.argument("name"),
                click.argument("command", nargs=-1, type=click.UNPROCESSED),
                click.option(
                    "--from",
                    "source",
                    metavar="JSON|@FILE",
                    help="The whole trigger, as POST /triggers.",
                ),
                click.option(
                    "--on", "event", metavar="TYPE", help="Type of event, `prefix.*`, or `*`."
                ),
                click.option(
                    "--where",
                    metavar="FILTER",
                    help="Only matching events: data.size > 1000 and has(data.name)",
                ),
                click.option(
                    "--debounce",
                    type=duration,
                    metavar="DURATION",
                    help="Wait until no event has come for this long; use the last one.",
                ),
                click.option(
                    "--batch",
                    type=click.IntRange(1),
                    metavar="N",
                    help="One job for this many events.",
                ),
                click.option("--rate", metavar="N/TIME", help="Rate limit of jobs, such as 10/1m."),
                job_options,
            ),
            body=_new_trigger,
        ),
        Verb(
            "update",
            """Change a trigger, by a merge patch: '{"filter": "data.size > 10"}'.""",
            calls.update_trigger,
            _draw_trigger,
            params=(click.argument("patch", metavar="JSON|@FILE"),),
            body=lambda patch: read_json(patch, "patch"),
        ),
        Verb(
            "pause",
            "Pause a trigger: it makes no jobs, and events are recorded as paused.",
            calls.pause_trigger,
            _draw_trigger,
        ),
        Verb(
            "resume",
            "Resume a trigger from the next event on.",
            calls.resume_trigger,
            _draw_trigger,
        ),
        Verb(
            "test",
            "Show how triggers would decide about an event; nothing happens.",
            _try,
            _draw_trial,
            names_one=False,
            params=(
                click.argument("event", metavar="JSON|@FILE"),
                click.option(
                    "--only",
                    metavar="NAME",
                    shell_complete=id_lookup.complete_triggers,
                    help="Test only this trigger.",
                ),
            ),
            body=_event_to_try,
            reads=True,
        ),
        Verb(
            "delete",
            "Delete a trigger; its jobs continue, events that wait in it are dropped.",
            calls.delete_trigger,
            ask=lambda _client, one: f"Remove the trigger {one.name}?",
            done=lambda one: (
                f"removed {one.name}",
                {"trigger_id": one.trigger_id, "name": one.name, "deleted": True},
            ),
        ),
        Verb(
            "deploy",
            "Replace the triggers of a rota.App by those it declares with @app.on.",
            lambda declared: calls.deploy_triggers(*declared),
            draw_deployed,
            names_one=False,
            params=(
                click.argument("app", metavar="PACKAGE.MODULE:APP"),
                click.option("--owner", help="Name of the app; default: PACKAGE.MODULE:APP."),
            ),
            body=_declared,
        ),
    ),
).group()


EVENT_COLUMNS: Columns[EventView] = (
    Column("RECEIVED", lambda one: local(one.received_at)),
    Column("TYPE", lambda one: one.type, cut=True),
    Column("SOURCE", lambda one: one.source, spare=1, cut=True),
    Column("ID", lambda one: one.id, cut=True),
    Column("REPEATS", lambda one: str(one.repeats) if one.repeats else "-", spare=2, right=True),
    Column("JOBS", lambda one: ", ".join(short(job_id) for job_id in one.job_ids), cut=True),
)
OUTCOME_COLUMNS: Columns[EventOutcome] = (
    Column("TRIGGER", lambda one: one.name or short(one.trigger_id), cut=True),
    Column("OUTCOME", lambda one: styled(one.outcome)),
    Column("JOB", lambda one: short(one.job_id)),
    Column("WHY", lambda one: one.message, spare=1, cut=True),
)


def _draw_events(page: EventPage) -> None:
    show_table(EVENT_COLUMNS, page.items, empty="no events yet")


def _list_events(client: Client, *, kind: str | None, limit: int) -> EventPage:
    return client.events(type=kind, limit=limit)


def _event_to_send(*, kind: str, data: str | None, **given: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"specversion": "1.0", "type": kind, "source": given["source"]}
    if data is not None:
        event["data"] = read_json(data, "data")
    if given["subject"]:
        event["subject"] = given["subject"]
    return event | without_none({"id": given["event_id"]})


def _send(client: Client, event: dict[str, Any]) -> Call[EventView]:
    return calls.send_event({"id": client.state.mint_key(), **event})


def _draw_event(sent: EventView) -> None:
    again = " is a duplicate and has no effect" if sent.duplicate else ""
    click.echo(f"{sent.type} {sent.id}{again}")
    show_table(OUTCOME_COLUMNS, sent.outcomes, empty="no trigger matches events of this type")


@click.command()
@click.option(
    "--config", "-c", type=Path, required=True, metavar="FILE", help="Configuration file (TOML)."
)
@click.option("--check", is_flag=True, help="Only check the file.")
@click.pass_context
def listen(ctx: click.Context, *, config: Path, check: bool) -> None:
    """Turn changes in folders, databases and brokers into events, and report changes of jobs.

    It can run on any machine that reaches the server, and be stopped at any time: unconfirmed
    events are sent again, and the server ignores duplicates.
    """
    from rota.events.config import ConfigError, read_config

    try:
        read = read_config(config)
        if check:
            click.echo(f"{len(read.source)} sources and {len(read.sink)} sinks")
            return
        ctx.exit(asyncio.run(_listen(read)))
    except ConfigError as error:
        raise Failure(str(error)) from error


async def _listen(config: Any) -> int:
    from rota.events.service import serve
    from rota.processes.process_log import set_up_log
    from rota.sdk import AsyncClient

    set_up_log()
    async with AsyncClient(config.url, config.token) as client:
        serving = asyncio.create_task(serve(config, client))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving
    return 0


events = Noun(
    name="events",
    help="List the last events, send one, or listen to other systems.",
    default=listing(
        params=(
            click.option("--type", "kind", help="Only of this type."),
            click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True),
        ),
        fetch=_list_events,
        draw=_draw_events,
    ),
    verbs=(
        Verb(
            "send",
            """Send an event.

            \b
              rota events send object.uploaded '{"name": "sales.csv", "size": 4096}'
              rota events send order.paid @order.json --source /shop --id order-42
            """,
            _send,
            _draw_event,
            names_one=False,
            params=(
                click.argument("kind", metavar="TYPE"),
                click.argument("data", metavar="[JSON|@FILE]", required=False),
                click.option(
                    "--source", default="/cli", show_default=True, help="Source of the event."
                ),
                click.option(
                    "--id",
                    "event_id",
                    help="Id of the event: a repetition has no effect; default: a new one.",
                ),
                click.option("--subject", help="Subject of the event."),
            ),
            body=_event_to_send,
            reads=True,
        ),
    ),
    commands=(listen,),
).group()


# Webhook endpoints

HOOK_COLUMNS: Columns[HookView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("SCHEME", lambda one: one.scheme),
    Column("EVENTS", lambda one: f"{one.type}.*", cut=True),
    Column("PATH", lambda one: one.path, cut=True),
    Column("TOLERANCE", lambda one: span(one.tolerance), spare=2, right=True),
    Column("CHANGED", lambda one: local(one.updated_at), spare=1),
)


def _draw_hooks(page: HookPage) -> None:
    show_table(HOOK_COLUMNS, page.items, empty="no webhook endpoints yet")


def _hook(*, secret: str | None, kind: str | None, **given: Any) -> dict[str, Any]:
    parts = {"secrets": [secret] if secret else None, "type": kind or None, **given}
    return without_none(parts)


def _draw_hook(hook: HookView) -> None:
    click.echo(f"{hook.path} accepts webhooks signed by {hook.scheme}; event types: {hook.type}.*")
    if hook.secret:
        click.echo(f"secret: {hook.secret}")


hooks = Noun(
    name="hooks",
    help="List webhook endpoints, or act on one: set, delete.",
    default=listing(fetch=lambda client: HookPage(client.hooks(), None), draw=_draw_hooks),
    verbs=(
        Verb(
            "set",
            "Set up an endpoint; a new secret is printed this once.",
            calls.set_hook,
            _draw_hook,
            params=(
                click.option(
                    "--scheme",
                    type=click.Choice(("github", "stripe", "rota")),
                    required=True,
                    help="Signature scheme of the sender.",
                ),
                click.option(
                    "--secret",
                    envvar="ROTA_HOOK_SECRET",
                    help="Secret shared with the sender; default: a new one.",
                ),
                click.option("--type", "kind", help="Prefix of the types of its events."),
                click.option(
                    "--tolerance",
                    type=duration,
                    metavar="DURATION",
                    help="Maximum age of a signature.",
                ),
            ),
            body=_hook,
        ),
        Verb("delete", "Remove an endpoint.", calls.delete_hook, done=removed),
    ),
).group()
