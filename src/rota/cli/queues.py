"""Lists queues and tenants, sets their limits and weights; pauses, resumes and purges queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rota.cli import id_lookup
from rota.cli.connect import answer, connected, every_item
from rota.cli.nouns import Noun, Verb, listing
from rota.cli.options import Number, json_option, or_none, pair, whole_or_none
from rota.cli.render import Column, Columns, plural, show_table, size_text
from rota.cli.views import QUEUE_COLUMNS, limits_text
from rota.sdk import Client, NotFoundError, calls
from rota.sdk.calls import Call
from rota.sdk.methods import admin_calls
from rota.wire.formats import parse_duration
from rota.wire.queues import QueuePage, QueueView, QuotaView, TenantPage, TenantView


def _draw_queues(page: QueuePage) -> None:
    show_table(QUEUE_COLUMNS, page.items, empty="no queues yet")


def _draw_queue(queue: QueueView) -> None:
    show_table(QUEUE_COLUMNS, [queue], empty="")
    click.echo(f"limits of each job: {limits_text(queue.limits)}")


def _purge_question(client: Client, name: str) -> str:
    depth = client.queue(name).depth
    return f"Cancel {plural(depth.pending + depth.queued, 'waiting job')} of {name}?"


@click.command("set")
@click.argument("name", shell_complete=id_lookup.complete_queues)
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--weight", type=Number(), help="Share among competing queues.")
@click.option("--max-workers", metavar="N|none", help="Maximum number of executions at once.")
@click.option(
    "--rate", "rate_limit", metavar="COUNT/PER|none", help="Rate limit of starts, such as 100/1m."
)
@click.option(
    "--limit", "limits", multiple=True, type=pair, metavar="NAME=VALUE|none",
    help="Limit of its jobs: processes, open_files, file_size, log_size, result_size.",
)  # fmt: skip
@click.option("--pause/--resume", "paused", default=None, help="Pause or resume the queue.")
@click.option("--reset", is_flag=True, help="Reset settings that are not given to their defaults.")
@json_option
def _set_queue(name: str, *, reset: bool, as_json: bool, **given: Any) -> None:
    """Change a queue; creates it if necessary."""
    settings = {key: value for key, value in given.items() if value not in (None, ())}
    if "limits" in settings:
        settings["limits"] = _limits_of(settings["limits"])
    if "max_workers" in settings:
        settings["max_workers"] = whole_or_none(settings["max_workers"], "--max-workers")
    if "rate_limit" in settings:
        settings["rate_limit"] = _rate_of(settings["rate_limit"])
    if not settings and not reset:
        raise click.UsageError("name what to change: --priority, --max-workers, --rate …")
    with connected() as client:
        try:
            call = calls.set_queue(name, settings, reset=reset)
            answer(client, call, _draw_queue, as_json=as_json)
        except NotFoundError:
            # There is no queue whose settings could be kept: a reset makes it.
            call = calls.set_queue(name, settings, reset=True)
            answer(client, call, _draw_queue, as_json=as_json)


def _rate_of(text: str) -> dict[str, Any] | None:
    """Reads `100/1m`: so many starts in each length of time."""
    if or_none(text) is None:
        return None
    number, slash, per = text.partition("/")
    try:
        if not slash:
            raise ValueError("a rate is a count and a length of time, such as 100/1m")
        per = f"1{per}" if per.isalpha() else per
        return {"count": int(number), "per": parse_duration(per)}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _limits_of(pairs: Sequence[tuple[str, str]]) -> dict[str, int | str | None]:
    """Reads `processes=256`, `file_size=2GiB`; `none` goes back to the default."""
    given = {name: or_none(value) for name, value in pairs}
    return {
        name: int(value) if value is not None and value.isdecimal() else value
        for name, value in given.items()
    }


queues = Noun(
    name="queues",
    help="List queues, or act on one: show, set, pause, resume, purge.",
    default=listing(fetch=lambda client: QueuePage(client.queues(), None), draw=_draw_queues),
    complete=id_lookup.complete_queues,
    verbs=(
        Verb("show", "Show one queue.", calls.get_queue, _draw_queue),
        Verb(
            "pause",
            "Start no more jobs of a queue; running jobs continue.",
            calls.pause_queue,
            _draw_queue,
        ),
        Verb("resume", "Start jobs of a queue again.", calls.resume_queue, _draw_queue),
        Verb(
            "purge",
            "Cancel all waiting jobs of a queue.",
            calls.purge_queue,
            lambda done: click.echo(f"cancelled {plural(done.count, 'job')}"),
            ask=_purge_question,
        ),
    ),
    commands=(_set_queue,),
).group()


# Tenants

TENANT_COLUMNS: Columns[TenantView] = (
    Column("TENANT", lambda one: one.name, cut=True),
    Column("WEIGHT", lambda one: f"{one.weight:g}", right=True),
    Column("QUEUED", lambda one: str(one.depth.pending + one.depth.queued), right=True),
    Column("RUNNING", lambda one: str(one.depth.running + one.depth.cancelling), right=True),
    Column("SHARE", lambda one: f"{one.share:.1%}", right=True),
    Column("ENTITLED", lambda one: f"{one.entitlement:.1%}", right=True),
    Column("USED h", lambda one: f"{one.usage:.2f}", spare=2, right=True),
    Column("QUOTA", lambda one: _quota_text(one.quota), spare=1),
)


def _quota_text(quota: QuotaView) -> str:
    parts = [
        None if quota.running is None else f"{quota.running} running",
        None if quota.queued is None else f"{quota.queued} queued",
        None if quota.cpu is None else f"{quota.cpu:g} cpu",
        None if quota.memory is None else size_text(quota.memory),
    ]
    return ", ".join(part for part in parts if part is not None) or "-"


def _list_tenants(client: Client) -> TenantPage:
    return TenantPage(every_item(client, admin_calls.list_tenants), None)


def _draw_tenants(page: TenantPage) -> None:
    show_table(TENANT_COLUMNS, page.items, empty="no tenants yet")


def _draw_tenant(tenant: TenantView) -> None:
    show_table(TENANT_COLUMNS, [tenant], empty="")


_QUOTAS = ("running", "queued", "cpu", "memory")


def _tenant_changes(*, weight: float | None, **quota: str | None) -> tuple[float | None, Any]:
    given = {kind: text for kind, text in quota.items() if text is not None}
    if weight is None and not given:
        raise click.UsageError(
            "name what to change: --weight, --running, --queued, --cpu, --memory"
        )
    return weight, given


def _set_tenant(
    client: Client, name: str, changes: tuple[float | None, Mapping[str, str]]
) -> Call[TenantView]:
    weight, quota = changes
    settings: dict[str, Any] = {"weight": 1.0, "quota": {}}
    try:
        before = client.call(admin_calls.get_tenant(name))
    except NotFoundError:
        pass
    else:
        kept = {kind: getattr(before.quota, kind) for kind in _QUOTAS}
        settings = {"weight": before.weight, "quota": kept}
    if weight is not None:
        settings["weight"] = weight
    settings["quota"] |= {kind: _amount(kind, text) for kind, text in quota.items()}
    return admin_calls.set_tenant(name, settings)


def _amount(kind: str, text: str) -> int | float | str | None:
    given = or_none(text)
    if given is None or kind == "memory":
        return given
    try:
        return float(given) if kind == "cpu" else int(given)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number", param_hint=f"'--{kind}'") from None


tenants = Noun(
    name="tenants",
    help="List tenants, or act on one: show, set.",
    default=listing(fetch=_list_tenants, draw=_draw_tenants),
    verbs=(
        Verb("show", "Show one tenant.", admin_calls.get_tenant, _draw_tenant),
        Verb(
            "set",
            "Change a tenant's weight or quota; other settings stay.",
            _set_tenant,
            _draw_tenant,
            params=(
                click.option(
                    "--weight", type=Number(), help="Share of the fleet, relative to other tenants."
                ),
                click.option(
                    "--running", metavar="N|none", help="Maximum number of executions at once."
                ),
                click.option(
                    "--queued",
                    metavar="N|none",
                    help="Maximum number of waiting jobs; more are refused.",
                ),
                click.option("--cpu", metavar="N|none", help="Maximum cores at once."),
                click.option("--memory", metavar="SIZE|none", help="Maximum memory at once."),
            ),
            body=_tenant_changes,
            reads=True,
        ),
    ),
).group()
