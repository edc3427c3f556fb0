"""Lists alerts, sets and silences their rules, and sets up the channels that are notified."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import click

from rota.cli.connect import answer, connected
from rota.cli.nouns import Noun, Verb, listing
from rota.cli.options import Number, duration, is_interactive, json_option
from rota.cli.render import (
    Column,
    Columns,
    Styled,
    local,
    print_object,
    show_facts,
    show_table,
    size_text,
    span,
)
from rota.sdk.methods import admin_calls as calls
from rota.wire.alerts import (
    AlertPage,
    AlertTrial,
    AlertView,
    ChannelPage,
    ChannelView,
    NoticePage,
    NoticeView,
)

SEVERITIES = ("info", "warning", "critical")
STYLES = {"firing": "bold red", "pending": "yellow", "ok": "green", "off": "dim"}
RULE_COLUMNS: Columns[AlertView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("STATUS", lambda one: Styled(one.status, STYLES[one.status])),
    Column("VALUE", lambda one: _value(one), right=True),
    Column("FROM", lambda one: _with_unit(one.threshold, one.unit), right=True),
    Column("FOR", lambda one: span(one.for_) if one.for_ else "-", spare=2, right=True),
    Column("QUEUE", lambda one: one.queue or "-", spare=3, cut=True),
    Column("SEVERITY", lambda one: one.severity, spare=1),
    Column("SINCE", lambda one: local(one.since), spare=1),
    Column("SILENCED UNTIL", lambda one: local(one.silence.until) if one.silence else "-", spare=1),
)
CHANNEL_COLUMNS: Columns[ChannelView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("ADDRESS", lambda one: one.url, cut=True),
    Column("FROM SEVERITY", lambda one: one.severity),
    Column("SIGNED", lambda one: "yes" if one.signed else "no", spare=1),
    Column("WAITING", lambda one: str(one.waiting), spare=1, right=True),
    Column("LAST SENT", lambda one: local(one.last.at) if one.last else "-", spare=1),
    Column("ERROR", lambda one: (one.last.error if one.last else None) or "-", spare=1, cut=True),
)
NOTICE_COLUMNS: Columns[NoticeView] = (
    Column("AT", lambda one: local(one.at)),
    Column("NAME", lambda one: one.name, cut=True),
    Column("STATUS", lambda one: Styled(one.status, STYLES.get(one.status, "green"))),
    Column("SEVERITY", lambda one: one.severity, spare=2),
    Column("TOLD", lambda one: _notified(one) or "nobody", spare=1, cut=True),
    Column("SAYS", lambda one: one.message, spare=3, cut=True),
)


def _value(one: AlertView) -> str:
    return "-" if one.value is None else _number(one.value, one.unit)


def _with_unit(value: float, unit: str) -> str:
    """Writes a number with its unit, in the singular where it is one."""
    if unit in ("bytes", "ratio"):
        return _number(value, unit)
    return f"{value:g} {unit.removesuffix('s') if value == 1 and unit != 's' else unit}"


def _number(value: float, unit: str) -> str:
    """Writes a number without its unit, unless that is a part of it."""
    if unit == "bytes":
        return size_text(value)
    return f"{value * 100:g}%" if unit == "ratio" else f"{value:g}"


def _notified(one: NoticeView) -> str:
    return ", ".join(
        each.channel if each.status == "taken" else f"{each.channel} ({each.status})"
        for each in one.deliveries
    )


def _draw_rules(page: AlertPage) -> None:
    show_table(RULE_COLUMNS, page.items, empty="nothing is watched for")


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
            ("threshold", _with_unit(one.threshold, one.unit)),
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


@click.command("set")
@click.argument("name")
@click.option("--condition", help="What it watches for; a built-in name says so itself.")
@click.option("--threshold", type=Number(), help="The value from which on it fires.")
@click.option(
    "--window", type=duration, metavar="DURATION", help="The time that is counted or compared."
)
@click.option("--for", "for_", type=duration, metavar="DURATION", help="How long it must hold.")
@click.option("--at-least", type=int, help="Do not judge fewer than this in the window.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="How bad it is.")
@click.option("--queue", help="Watch this queue only.")
@click.option("--channel", "channels", multiple=True, help="Who is told; none named: everybody.")
@click.option("--nobody", is_flag=True, help="Tell nobody; it is only shown.")
@click.option("--repeat", type=duration, metavar="DURATION", help="Tell again this often.")
@click.option("--on/--off", "enabled", default=None, help="Watch for it, or do not.")
@click.option("--dry-run", is_flag=True, help="Only say what it would find now.")
@json_option
def _set_rule(name: str, *, nobody: bool, dry_run: bool, as_json: bool, **given: Any) -> None:
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


def _draw_notices(page: NoticePage) -> None:
    show_table(NOTICE_COLUMNS, page.items, empty="nothing was told lately")


@click.command()
@click.argument("channel")
@json_option
def test(channel: str, *, as_json: bool) -> int:
    """Send a notice that says it is a test; fails if nobody takes it."""
    with connected() as client:
        tried = client.call(calls.try_channel(channel))
    if as_json:
        print_object(tried)
    else:
        click.echo(f"{channel}: {tried.message}")
    return 0 if tried.taken else 1


@click.command()
def rules() -> None:
    """Print the built-in rules as a rule file for Prometheus."""
    click.echo(_deployed("prometheus-rules.yml"), nl=False)


@click.command()
def dashboard() -> None:
    """Print a dashboard for Grafana, to be imported there."""
    click.echo(_deployed("grafana-dashboard.json"), nl=False)


def _deployed(name: str) -> str:
    """Reads a file of `rota.alerts` that other programs are set up with."""
    return files("rota.alerts").joinpath("deploy", name).read_text("utf-8")


# Channels


def _draw_channels(page: ChannelPage) -> None:
    empty = "nobody is told yet: rota alerts channels set NAME"
    show_table(CHANNEL_COLUMNS, page.items, empty=empty)


def _draw_channel(one: ChannelView) -> None:
    click.echo(f"{one.name} is told at {one.url}; try it: rota alerts test {one.name}")


def _channel(**given: Any) -> Mapping[str, Any]:
    return given if given["url"] is not None else {**given, "url": _address()}


def _address() -> str:
    """Asks a person for it without showing it; or reads the line that was piped in."""
    if is_interactive():
        return str(click.prompt("Address", hide_input=True, err=True))
    piped = "" if sys.stdin is None else sys.stdin.readline().strip()
    if not piped:
        raise click.UsageError("nobody to ask for the address: say --url, or set ROTA_ALERT_URL")
    return piped


_channels = Noun(
    name="channels",
    help="List who is told, or set up and remove somebody.",
    default=listing(call=calls.list_channels, draw=_draw_channels),
    verbs=(
        Verb(
            "set",
            "Set up somebody to tell; the address is never shown again.",
            calls.set_channel,
            _draw_channel,
            params=(
                click.option(
                    "--url",
                    envvar="ROTA_ALERT_URL",
                    help="https://…, mailto://…, slack://…; asked for if left out, for it is a"
                    " secret.",
                ),
                click.option(
                    "--secret", envvar="ROTA_ALERT_SECRET", help="Signs what goes to a webhook."
                ),
                click.option(
                    "--severity",
                    type=click.Choice(SEVERITIES),
                    default="info",
                    show_default=True,
                    help="What matters less is not told.",
                ),
            ),
            body=_channel,
        ),
        Verb(
            "delete",
            "Tell somebody no longer.",
            calls.delete_channel,
            done=lambda name: (f"{name} is told no longer", {"name": name, "deleted": True}),
        ),
    ),
)

alerts = Noun(
    name="alerts",
    help="List what is watched for and how it stands, or act on it.",
    default=listing(
        help="List what is watched for, and how it stands.",
        call=calls.list_alerts,
        draw=_draw_rules,
    ),
    default_has_name=True,
    verbs=(
        Verb("show", "Show a rule, and how it stands.", calls.get_alert, _draw_rule),
        Verb(
            "reset",
            "Remove a rule, or make a built-in one as it was at first.",
            calls.delete_alert,
            done=lambda name: (
                f"{name} is as it was at first, or gone",
                {"name": name, "reset": True},
            ),
        ),
        Verb(
            "silence",
            "Tell nobody of it for a while.",
            calls.silence_alert,
            _draw_rule,
            params=(
                click.option(
                    "--for", type=duration, default="1h", show_default=True, help="How long."
                ),
                click.option("--reason", default="", help="For others who look."),
            ),
            body=dict,
        ),
        Verb("unsilence", "Let it tell again.", calls.unsilence_alert, _draw_rule),
        Verb(
            "notices",
            "List what was told lately, and what became of it.",
            calls.list_notices,
            _draw_notices,
            names_one=False,
        ),
    ),
    commands=(_set_rule, test, rules, dashboard, _channels.group()),
).group()
