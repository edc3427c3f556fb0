"""Says what another policy would change, and what it would have meant in the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from rota.api.cell.policy import policy_of, policy_view
from rota.cli.connect import connected
from rota.cli.options import json_option, past
from rota.cli.planning.policy_figures import document
from rota.cli.planning.policy_files import read_policy
from rota.cli.planning.policy_trials import RECORDED, Names, tried
from rota.cli.planning.replaying import past_case, replay, setting_of
from rota.cli.render import Column, print_object, show_table
from rota.core.records.policy import Policy
from rota.sdk.methods import admin_calls
from rota.wire.policy import PolicySpec, PolicyView
from rota.wire.units import dec_hook

COLUMNS = (Column("SETTING"), Column("NOW"), Column("THEN"))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--replay", "since", type=past, metavar="TIME",
    help="Run once more what ran since then, or in so long: 7d.",
)  # fmt: skip
@json_option
def plan(file: Path, *, since: Any, as_json: bool) -> None:
    """Show what a policy in a TOML file would change; nothing is set.

    With --replay it also shows what it would have meant for each tenant: as it was, with the
    policy in force, and with the one in the file.
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
            answer |= document(case, tried(names, setting_of(case)), by_tenant=True)
        print_object(answer)
        return
    rows = [(name, _shown(one["now"]), _shown(one["then"])) for name, one in changes.items()]
    show_table(COLUMNS, rows, empty="nothing would change")
    if case is not None:
        click.echo()
        replay(case, names, as_json=False)


def in_force(view: PolicyView) -> Policy:
    """The policy of a server's answer; what it does not tell is as in a new cell."""
    return policy_of(msgspec.convert(msgspec.to_builtins(view), PolicySpec, dec_hook=dec_hook))


def changed(now: PolicyView, then: PolicyView) -> dict[str, dict[str, Any]]:
    """What is not the same, by name."""
    before, after = msgspec.to_builtins(now), msgspec.to_builtins(then)
    return {
        name: {"now": value, "then": after[name]}
        for name, value in before.items()
        if after[name] != value
    }


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
