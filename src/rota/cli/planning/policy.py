"""Shows and sets the policy of a cell."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from rota.cli.cell.queues import or_none
from rota.cli.connect import answer, connected
from rota.cli.options import Number, json_option
from rota.cli.planning.policy_plan import plan
from rota.cli.render import show_facts
from rota.cli.text import span
from rota.core.records.policy import PRESETS, BackfillKind, CandidateKind, OrderKind
from rota.sdk.methods import admin_calls
from rota.wire.policy import PolicyView
from rota.wire.units import parse_duration

_TIMES = ("length_cap", "priority_wait", "half_life", "preempt_after")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def policy(ctx: click.Context, *, as_json: bool) -> None:
    """Show the rules by which jobs are ordered and let past each other, or set them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, as_json=as_json)


policy.add_command(plan)


@policy.command()
@json_option
def show(*, as_json: bool) -> None:
    """Show the policy in force."""
    with connected() as client:
        answer(client, admin_calls.get_policy(), _draw, as_json=as_json)


def _draw(view: PolicyView) -> None:
    facts = msgspec.to_builtins(view)
    for name in _TIMES:
        facts[name] = span(facts[name])
    show_facts([(name, "-" if value is None else str(value)) for name, value in facts.items()])


@policy.command("set")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Start from this one.")
@click.option("--order", type=click.Choice([one.value for one in OrderKind]))
@click.option("--backfill", type=click.Choice([one.value for one in BackfillKind]))
@click.option("--candidates", type=click.Choice([one.value for one in CandidateKind]))
@click.option("--beta", type=Number(), help="How much longer a job waits for being long.")
@click.option("--length-cap", help="A job counts as no longer than this in its place.")
@click.option("--priority-wait", help="The waiting time that a point of priority is worth.")
@click.option("--half-life", help="After this long, what a tenant used counts half.")
@click.option("--preempt-gap", metavar="N|none", help="Evict jobs of a priority lower by this.")
@click.option("--preempt-after", help="Evict only for a job that has waited this long.")
@click.option("--max-running", metavar="N|none", help="Executions of the whole cell at once.")
@click.option("--max-queued", metavar="N|none", help="Live jobs of the whole cell.")
@json_option
def set_(*, preset: str | None, as_json: bool, **given: Any) -> None:
    """Change the policy; what is not given stays, or is as in the preset."""
    settings = {name: _value(name, text) for name, text in given.items() if text is not None}
    if preset is None and not settings:
        raise click.UsageError("say what to change: --preset, --order, --backfill, --beta …")
    with connected() as client:
        if preset is None:
            before = msgspec.to_builtins(client.call(admin_calls.get_policy()))
            settings = {**before, **settings}
        else:
            settings["preset"] = preset
        answer(client, admin_calls.set_policy(settings), _draw, as_json=as_json)


def _value(name: str, given: Any) -> Any:
    if name in ("preempt_gap", "max_running", "max_queued"):
        text = or_none(given)
        if text is not None and not text.isdecimal():
            hint = "--" + name.replace("_", "-")
            raise click.BadParameter(f"{given!r} is no whole number", param_hint=f"'{hint}'")
        return None if text is None else int(text)
    if name in _TIMES:
        try:
            parse_duration(given)
            return given
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return given
