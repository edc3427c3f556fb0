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
    Column("THRESHOLD", lambda one: _with_unit(one.threshold, one.unit), right=True),
    Column("FOR", lambda one: span(one.for_) if one.for_ else "-", spare=2, right=True),
    Column("QUEUE", lambda one: one.queue or "-", spare=3, cut=True),
    Column("SEVERITY", lambda one: one.severity, spare=1),
    Column("SINCE", lambda one: local(one.since), spare=1),
    Column("SILENCED UNTIL", lambda one: local(one.silence.until) if one.silence else "-", spare=1),
)
CHANNEL_COLUMNS: Columns[ChannelView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("ADDRESS", lambda one: one.url, cut=True),
    Column("MIN SEVERITY", lambda one: one.severity),
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
    Column("SENT TO", lambda one: _notified(one) or "none", spare=1, cut=True),
    Column("MESSAGE", lambda one: one.message, spare=3, cut=True),
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
    show_table(RULE_COLUMNS, page.items, empty="no alert rules")


def _draw_rule(one: AlertView) -> None:
    silence = "-"
    if one.silence is not None:
        silence = f"until {local(one.silence.until)} {one.silence.reason}".rstrip()
    show_facts(
        [
            ("name", one.name),
            ("status", Styled(one.status, STYLES[one.status])),
            ("message", one.message or "-"),
            ("since", local(one.since)),
            ("condition", f"{one.condition}: {one.meaning}"),
            ("threshold", _with_unit(one.threshold, one.unit)),
            ("window", span(one.window)),
            ("for", span(one.for_) if one.for_ else "at once"),
            ("at least", str(one.at_least)),
            ("queue", one.queue or "all"),
            ("severity", one.severity),
            ("channels", "all" if one.channels is None else ", ".join(one.channels) or "none"),
            ("repeat", "-" if one.repeat is None else f"every {span(one.repeat)}"),
            ("silenced", silence),
        ]
    )


@click.command("set")
@click.argument("name")
@click.option("--condition", help="Condition; not needed for the name of a built-in rule.")
@click.option("--threshold", type=Number(), help="Value from which the rule fires.")
@click.option("--window", type=duration, metavar="DURATION", help="Time window of the measurement.")
@click.option(
    "--for", "for_", type=duration, metavar="DURATION", help="How long the condition must hold."
)
@click.option("--at-least", type=int, help="Minimum number of samples in the window.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Severity.")
@click.option("--queue", help="Only for this queue.")
@click.option(
    "--channel", "channels", multiple=True, help="Channel to notify; may repeat; default: all."
)
@click.option("--nobody", is_flag=True, help="Notify no channel; only show the alert.")
@click.option(
    "--repeat",
    type=duration,
    metavar="DURATION",
    help="Repeat the notification this often while firing.",
)
@click.option("--on/--off", "enabled", default=None, help="Enable or disable the rule.")
@click.option("--dry-run", is_flag=True, help="Only show what the rule would find now.")
@json_option
def _set_rule(name: str, *, nobody: bool, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Create or change a rule; settings that are not given stay."""
    changes = {
        word.rstrip("_"): list(value) if isinstance(value, tuple) else value
        for word, value in given.items()
        if value is not None and value != ()
    } | ({"channels": []} if nobody else {})
    if not changes and not dry_run:
        raise click.UsageError("name what to change: --threshold, --for, --severity, --off …")
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
        click.echo("not enough data yet: no whole window has passed")
        return
    whom = ", ".join(one.tells) or "no channel"
    click.echo(f"the condition {'holds' if one.holds else 'does not hold'} now: {one.message}")
    click.echo(f"would notify: {whom}")


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
    show_table(NOTICE_COLUMNS, page.items, empty="no recent notifications")


@click.command()
@click.argument("channel")
@json_option
def test(channel: str, *, as_json: bool) -> int:
    """Send a test alert to a channel; exit 1 if it is not delivered."""
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
    """Print a dashboard to import into Grafana."""
    click.echo(_deployed("grafana-dashboard.json"), nl=False)


def _deployed(name: str) -> str:
    """Reads a file of `rota.alerts` that other programs are set up with."""
    return files("rota.alerts").joinpath("deploy", name).read_text("utf-8")


# Channels


def _draw_channels(page: ChannelPage) -> None:
    empty = "no channels yet. Set one up: rota alerts channels set NAME"
    show_table(CHANNEL_COLUMNS, page.items, empty=empty)


def _draw_channel(one: ChannelView) -> None:
    click.echo(f"{one.name} sends to {one.url}; test it: rota alerts test {one.name}")


def _channel(**given: Any) -> Mapping[str, Any]:
    return given if given["url"] is not None else {**given, "url": _address()}


def _address() -> str:
    """Asks a person for it without showing it; or reads the line that was piped in."""
    if is_interactive():
        return str(click.prompt("Address", hide_input=True, err=True))
    piped = "" if sys.stdin is None else sys.stdin.readline().strip()
    if not piped:
        raise click.UsageError(
            "there is no terminal to ask for the address: give --url, or set ROTA_ALERT_URL"
        )
    return piped


_channels = Noun(
    name="channels",
    help="List notification channels, or act on one: set, delete.",
    default=listing(call=calls.list_channels, draw=_draw_channels),
    verbs=(
        Verb(
            "set",
            "Set up a channel; its address is never shown again.",
            calls.set_channel,
            _draw_channel,
            params=(
                click.option(
                    "--url",
                    envvar="ROTA_ALERT_URL",
                    help="https://…, mailto://…, slack://…; asked for if left out, because it may"
                    " contain a secret.",
                ),
                click.option(
                    "--secret",
                    envvar="ROTA_ALERT_SECRET",
                    help="Secret that signs requests to a webhook.",
                ),
                click.option(
                    "--severity",
                    type=click.Choice(SEVERITIES),
                    default="info",
                    show_default=True,
                    help="Minimum severity of alerts sent to the channel.",
                ),
            ),
            body=_channel,
        ),
        Verb(
            "delete",
            "Delete a channel.",
            calls.delete_channel,
            done=lambda name: (f"removed {name}", {"name": name, "deleted": True}),
        ),
    ),
)

alerts = Noun(
    name="alerts",
    help="List alert rules and their state, or act on one.",
    default=listing(
        help="List alert rules and their state.",
        call=calls.list_alerts,
        draw=_draw_rules,
    ),
    default_has_name=True,
    verbs=(
        Verb("show", "Show a rule and its state.", calls.get_alert, _draw_rule),
        Verb(
            "reset",
            "Delete a rule, or reset a built-in one to its defaults.",
            calls.delete_alert,
            done=lambda name: (
                f"{name} is deleted, or reset to its defaults",
                {"name": name, "reset": True},
            ),
        ),
        Verb(
            "silence",
            "Silence a rule for a while.",
            calls.silence_alert,
            _draw_rule,
            params=(
                click.option(
                    "--for",
                    type=duration,
                    default="1h",
                    show_default=True,
                    help="Length of the silence.",
                ),
                click.option("--reason", default="", help="Reason, shown to others."),
            ),
            body=dict,
        ),
        Verb("unsilence", "End the silence of a rule.", calls.unsilence_alert, _draw_rule),
        Verb(
            "notices",
            "List recent notifications and their delivery.",
            calls.list_notices,
            _draw_notices,
            names_one=False,
        ),
    ),
    commands=(_set_rule, test, rules, dashboard, _channels.group()),
).group()
