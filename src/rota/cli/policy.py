"""Shows and sets the policy of a cell; plans what another policy would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from rota.api.endpoints.policy import policy_of, policy_view
from rota.cli.connect import answer, connected
from rota.cli.history import past_case, replay, setting_of
from rota.cli.nouns import Noun, Verb
from rota.cli.options import Number, json_option, past, whole_or_none
from rota.cli.render import Column, Columns, print_object, show_facts, show_table, span
from rota.cli.simulate import RECORDED, Names, read_policy, trials_document, try_policies
from rota.core.policy import PRESETS, BackfillKind, CandidateKind, OrderKind, Policy
from rota.sdk.methods import admin_calls
from rota.wire.formats import dec_hook, parse_duration
from rota.wire.policy import PolicySpec, PolicyView

PLAN_COLUMNS: Columns[tuple[str, dict[str, Any]]] = (
    Column("SETTING", lambda one: one[0]),
    Column("NOW", lambda one: _shown(one[1]["now"])),
    Column("THEN", lambda one: _shown(one[1]["then"])),
)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--replay", "since", type=past, metavar="TIME",
    help="Replay the jobs since this time, or this long ago (7d).",
)  # fmt: skip
@json_option
def plan(file: Path, *, since: Any, as_json: bool) -> None:
    """Show what a policy in a TOML file would change; sets nothing.

    With --replay it also compares the waits of each tenant: as recorded, with the policy in force,
    and with the policy in the file.
    """
    new = read_policy(file)
    with connected() as client:
        now = client.call(admin_calls.get_policy())
        given = {"after": since, "before": None, "queue": None, "tenant": None}
        case = None if since is None else past_case(client, given)
    names: Names = {RECORDED: None, "now": in_force(now), "then": new}
    changes = changed(now, policy_view(new))
    if as_json:
        answer: dict[str, Any] = {"changes": changes}
        if case is not None:
            answer |= trials_document(case, try_policies(names, setting_of(case)), by_tenant=True)
        print_object(answer)
        return
    show_table(PLAN_COLUMNS, list(changes.items()), empty="nothing would change")
    if case is not None:
        click.echo()
        replay(case, names, as_json=False)


def in_force(view: PolicyView) -> Policy:
    """Reads the policy of a server's answer; missing settings are those of a new cell."""
    return policy_of(msgspec.convert(msgspec.to_builtins(view), PolicySpec, dec_hook=dec_hook))


def changed(now: PolicyView, then: PolicyView) -> dict[str, dict[str, Any]]:
    """Returns the settings that differ, by name."""
    before, after = msgspec.to_builtins(now), msgspec.to_builtins(then)
    return {
        name: {"now": value, "then": after[name]}
        for name, value in before.items()
        if after[name] != value
    }


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


_TIMES = ("length_cap", "priority_wait", "half_life", "preempt_after")


def _draw(view: PolicyView) -> None:
    facts = msgspec.to_builtins(view)
    facts |= {name: span(facts[name]) for name in _TIMES}
    show_facts([(name, "-" if value is None else str(value)) for name, value in facts.items()])


@click.command("set")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Start from this preset.")
@click.option("--order", type=click.Choice([one.value for one in OrderKind]))
@click.option("--backfill", type=click.Choice([one.value for one in BackfillKind]))
@click.option("--candidates", type=click.Choice([one.value for one in CandidateKind]))
@click.option("--beta", type=Number(), help="How much longer a long job waits.")
@click.option("--length-cap", help="Longer jobs count as this long.")
@click.option("--priority-wait", help="Waiting time that equals one point of priority.")
@click.option("--half-life", help="Time after which past use of a tenant counts half.")
@click.option(
    "--preempt-gap", metavar="N|none", help="Preempt jobs whose priority is lower by this."
)
@click.option("--preempt-after", help="Preempt only for a job that has waited this long.")
@click.option("--max-running", metavar="N|none", help="Maximum executions of the whole cell.")
@click.option("--max-queued", metavar="N|none", help="Maximum live jobs of the whole cell.")
@json_option
def _set(*, preset: str | None, as_json: bool, **given: Any) -> None:
    """Change the policy; other settings stay, or have the value of --preset."""
    settings = {name: _value(name, text) for name, text in given.items() if text is not None}
    if preset is None and not settings:
        raise click.UsageError("name what to change: --preset, --order, --backfill, --beta …")
    with connected() as client:
        if preset is None:
            before = msgspec.to_builtins(client.call(admin_calls.get_policy()))
            settings = {**before, **settings}
        else:
            settings["preset"] = preset
        answer(client, admin_calls.set_policy(settings), _draw, as_json=as_json)


def _value(name: str, given: Any) -> Any:
    if name in ("preempt_gap", "max_running", "max_queued"):
        return whole_or_none(given, "--" + name.replace("_", "-"))
    if name in _TIMES:
        try:
            parse_duration(given)
            return given
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return given


policy = Noun(
    name="policy",
    help="Show or set the scheduling policy: order, fair share, backfill and preemption.",
    default=Verb(
        "show", "Show the policy in force.", admin_calls.get_policy, _draw, names_one=False
    ),
    default_has_name=True,
    commands=(plan, _set),
).group()
