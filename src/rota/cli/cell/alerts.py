"""Lists alerts, sets and silences their rules, and says who is told."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

import click

from rota.cli.cell.queues import is_anybody_there
from rota.cli.connect import answer, connected
from rota.cli.options import Number, duration, json_option
from rota.cli.render import Column, Row, Styled, print_object, show_facts, show_table, tell
from rota.cli.text import local, size, span
from rota.sdk.methods import admin_calls as calls
from rota.wire.alerts import (
    AlertPage,
    AlertTrial,
    AlertView,
    ChannelPage,
    ChannelTrial,
    ChannelView,
    NoticePage,
    NoticeView,
)

RULES = (
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("VALUE", right=True),
    Column("FROM", right=True),
    Column("FOR", spare=2, right=True),
    Column("QUEUE", spare=3, cut=True),
    Column("SEVERITY", spare=1),
    Column("SINCE", spare=1),
    Column("SILENCED UNTIL", spare=1),
)
CHANNELS = (
    Column("NAME", cut=True),
    Column("ADDRESS", cut=True),
    Column("FROM SEVERITY"),
    Column("SIGNED", spare=1),
    Column("WAITING", spare=1, right=True),
    Column("LAST SENT", spare=1),
    Column("ERROR", spare=1, cut=True),
)
NOTICES = (
    Column("AT"),
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("SEVERITY", spare=2),
    Column("TOLD", spare=1, cut=True),
    Column("SAYS", spare=3, cut=True),
)
STYLES = {"firing": "bold red", "pending": "yellow", "ok": "green", "off": "dim"}


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def alerts(ctx: click.Context, *, as_json: bool) -> None:
    """List what is watched for and how it stands, or act on it."""
    if ctx.invoked_subcommand is None:
        with connected() as client:
            answer(client, calls.list_alerts(), _draw_rules, as_json=as_json)


@alerts.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List what is watched for, and how it stands."""
    with connected() as client:
        answer(client, calls.list_alerts(), _draw_rules, as_json=as_json)


def _draw_rules(page: AlertPage) -> None:
    show_table(RULES, [_row(one) for one in page.items], empty="nothing is watched for")


def _row(one: AlertView) -> Row:
    return (
        one.name,
        Styled(one.status, STYLES[one.status]),
        "-" if one.value is None else _number(one.value, one.unit),
        _figure(one.threshold, one.unit),
        span(one.for_) if one.for_ else "-",
        one.queue or "-",
        one.severity,
        local(one.since),
        local(one.silence.until) if one.silence else "-",
    )


def _figure(value: float, unit: str) -> str:
    """With its unit, in the singular where it is one."""
    if unit in ("bytes", "ratio"):
        return _number(value, unit)
    return f"{value:g} {unit.removesuffix('s') if value == 1 and unit != 's' else unit}"


def _number(value: float, unit: str) -> str:
    """Without it, unless it is a part of the number."""
    if unit == "bytes":
        return size(value)
    return f"{value * 100:g}%" if unit == "ratio" else f"{value:g}"


@alerts.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a rule, and how it stands."""
    with connected() as client:
        answer(client, calls.get_alert(name), _draw_rule, as_json=as_json)


def _draw_rule(one: AlertView) -> None:
    silence = "-"
    if one.silence is not None:
        silence = f"until {local(one.silence.until)} {one.silence.reason}".rstrip()
    show_facts(
        [
            ("name", one.name),
            ("status", Styled(one.status, STYLES[one.status])),
            ("says", one.message or "-"),
            ("since", local(one.since)),
            ("watches for", f"{one.condition}: {one.meaning}"),
            ("threshold", _figure(one.threshold, one.unit)),
            ("window", span(one.window)),
            ("for", span(one.for_) if one.for_ else "at once"),
            ("at least", str(one.at_least)),
            ("queue", one.queue or "all"),
            ("severity", one.severity),
            ("tells", "everybody" if one.channels is None else ", ".join(one.channels) or "nobody"),
            ("again", "-" if one.repeat is None else f"every {span(one.repeat)}"),
            ("silenced", silence),
        ]
    )


@alerts.command("set")
@click.argument("name")
@click.option("--condition", help="What it watches for; a built-in name says so itself.")
@click.option("--threshold", type=Number(), help="The value from which on it fires.")
@click.option(
    "--window", type=duration, metavar="DURATION", help="The time that is counted or compared."
)
@click.option("--for", "for_", type=duration, metavar="DURATION", help="How long it must hold.")
@click.option("--at-least", type=int, help="Do not judge fewer than this in the window.")
@click.option(
    "--severity", type=click.Choice(["info", "warning", "critical"]), help="How bad it is."
)
@click.option("--queue", help="Watch this queue only.")
@click.option("--channel", "channels", multiple=True, help="Who is told; none named: everybody.")
@click.option("--nobody", is_flag=True, help="Tell nobody; it is only shown.")
@click.option("--repeat", type=duration, metavar="DURATION", help="Tell again this often.")
@click.option("--on/--off", "enabled", default=None, help="Watch for it, or do not.")
@click.option("--dry-run", is_flag=True, help="Only say what it would find now.")
@json_option
def set_(name: str, *, nobody: bool, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Make a rule or change one; what is not given stays as it is."""
    changes = {
        word.rstrip("_"): list(value) if isinstance(value, tuple) else value
        for word, value in given.items()
        if value is not None and value != ()
    } | ({"channels": []} if nobody else {})
    if not changes and not dry_run:
        raise click.UsageError("say what to change: --threshold, --for, --severity, --off …")
    with connected() as client:
        known = {one.name: one for one in client.call(calls.list_alerts()).items}
        before = _spec_of(known[name]) if name in known and "condition" not in changes else {}
        spec = {**before, **changes}
        if dry_run:
            answer(client, calls.try_alert(name, spec), _draw_trial, as_json=as_json)
        else:
            answer(client, calls.set_alert(name, spec), _draw_rule, as_json=as_json)


def _draw_trial(one: AlertTrial) -> None:
    if one.holds is None:
        click.echo("nothing can be said yet: not a whole window was seen")
        return
    whom = ", ".join(one.tells) or "nobody"
    click.echo(f"it {'holds' if one.holds else 'does not hold'} now: {one.message}")
    click.echo(f"would tell: {whom}")


def _spec_of(one: AlertView) -> dict[str, Any]:
    return {
        "condition": one.condition,
        "threshold": one.threshold,
        "window": one.window,
        "for": one.for_,
        "at_least": one.at_least,
        "severity": one.severity,
        "queue": one.queue,
        "channels": one.channels,
        "repeat": one.repeat,
        "enabled": one.enabled,
    }


@alerts.command()
@click.argument("name")
@json_option
def reset(name: str, *, as_json: bool) -> None:
    """Remove a rule, or make a built-in one as it was at first."""
    with connected() as client:
        client.call(calls.delete_alert(name))
        text = f"{name} is as it was at first, or gone"
        tell(text, {"name": name, "reset": True}, as_json=as_json)


@alerts.command()
@click.argument("name")
@click.option("--for", "length", type=duration, default="1h", show_default=True, help="How long.")
@click.option("--reason", default="", help="For others who look.")
@json_option
def silence(name: str, *, length: Any, reason: str, as_json: bool) -> None:
    """Tell nobody of it for a while."""
    body = {"for": length, "reason": reason}
    with connected() as client:
        answer(client, calls.silence_alert(name, body), _draw_rule, as_json=as_json)


@alerts.command()
@click.argument("name")
@json_option
def unsilence(name: str, *, as_json: bool) -> None:
    """Let it tell again."""
    with connected() as client:
        answer(client, calls.unsilence_alert(name), _draw_rule, as_json=as_json)


@alerts.command()
@json_option
def notices(*, as_json: bool) -> None:
    """List what was told lately, and what became of it."""
    with connected() as client:
        answer(client, calls.list_notices(), _draw_notices, as_json=as_json)


def _draw_notices(page: NoticePage) -> None:
    show_table(NOTICES, [_notice_row(one) for one in page.items], empty="nothing was told lately")


def _notice_row(one: NoticeView) -> Row:
    told = ", ".join(
        each.channel if each.status == "taken" else f"{each.channel} ({each.status})"
        for each in one.deliveries
    )
    status = Styled(one.status, STYLES.get(one.status, "green"))
    return (local(one.at), one.name, status, one.severity, told or "nobody", one.message)


@alerts.group(invoke_without_command=True)
@json_option
@click.pass_context
def channels(ctx: click.Context, *, as_json: bool) -> None:
    """List who is told, or set up and remove somebody."""
    if ctx.invoked_subcommand is None:
        with connected() as client:
            answer(client, calls.list_channels(), _draw_channels, as_json=as_json)


def _draw_channels(page: ChannelPage) -> None:
    rows = [_channel_row(one) for one in page.items]
    show_table(CHANNELS, rows, empty="nobody is told yet: rota alerts channels set NAME")


def _channel_row(one: ChannelView) -> Row:
    return (
        one.name,
        one.url,
        one.severity,
        "yes" if one.signed else "no",
        str(one.waiting),
        local(one.last.at) if one.last else "-",
        (one.last.error if one.last else None) or "-",
    )


@channels.command("set")
@click.argument("name")
@click.option(
    "--url", envvar="ROTA_ALERT_URL",
    help="https://…, mailto://…, slack://…; asked for if left out, for it is a secret.",
)  # fmt: skip
@click.option("--secret", envvar="ROTA_ALERT_SECRET", help="Signs what goes to a webhook.")
@click.option(
    "--severity", type=click.Choice(["info", "warning", "critical"]), default="info",
    show_default=True, help="What matters less is not told.",
)  # fmt: skip
@json_option
def set_channel(name: str, *, as_json: bool, **given: Any) -> None:
    """Set up somebody to tell; the address is never shown again."""

    def draw(one: ChannelView) -> None:
        click.echo(f"{one.name} is told at {one.url}; try it: rota alerts test {one.name}")

    if given["url"] is None:
        given["url"] = _address()
    with connected() as client:
        answer(client, calls.set_channel(name, given), draw, as_json=as_json)


def _address() -> str:
    """From a person, who does not see it typed; or the line that was piped in."""
    if is_anybody_there():
        return str(click.prompt("Address", hide_input=True, err=True))
    piped = "" if sys.stdin is None else sys.stdin.readline().strip()
    if not piped:
        raise click.UsageError("nobody to ask for the address: say --url, or set ROTA_ALERT_URL")
    return piped


@channels.command("delete")
@click.argument("name")
@json_option
def delete_channel(name: str, *, as_json: bool) -> None:
    """Tell somebody no longer."""
    with connected() as client:
        client.call(calls.delete_channel(name))
        tell(f"{name} is told no longer", {"name": name, "deleted": True}, as_json=as_json)


@alerts.command()
@click.argument("channel")
@json_option
def test(channel: str, *, as_json: bool) -> int:
    """Send a notice that says it is a test; fails if nobody takes it."""
    with connected() as client:
        tried: ChannelTrial = client.call(calls.try_channel(channel))
    if as_json:
        print_object(tried)
    else:
        click.echo(f"{channel}: {tried.message}")
    return 0 if tried.taken else 1


@alerts.command()
def rules() -> None:
    """Print the built-in rules as a rule file for Prometheus."""
    click.echo(_deployed("prometheus-rules.yml"), nl=False)


@alerts.command()
def dashboard() -> None:
    """Print a dashboard for Grafana, to be imported there."""
    click.echo(_deployed("grafana-dashboard.json"), nl=False)


def _deployed(name: str) -> str:
    """A file of `rota.alerts` that other programs are set up with."""
    return files("rota.alerts").joinpath("deploy", name).read_text("utf-8")
