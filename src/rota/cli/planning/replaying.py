"""Replays what ran in a cell under other policies, straight from its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.cli.planning.past import lines_of, opening_of
from rota.cli.planning.policy_figures import document, draw
from rota.cli.planning.policy_trials import Names, tried
from rota.cli.planning.workloads import Case
from rota.cli.problems import Failure
from rota.cli.render import print_object
from rota.engine.clock import SystemClock
from rota.sdk import Client
from rota.simulate.history import History
from rota.simulate.study import Setting
from rota.simulate.workload import GraphError, fitting


def past_case(client: Client, given: Mapping[str, Any]) -> Case:
    """The jobs that ran, on the workers that are there now."""
    try:
        history = History("the past", list(lines_of(client, given)), opening_of(client))
    except GraphError as error:
        raise Failure(str(error)) from error
    fleet = history.fleet()
    if fleet is None:
        raise Failure("no worker is there, so nothing could run: start one, or use rota simulate")
    works = fitting(history, fleet.can_run)
    if not len(works):
        raise Failure("no job ran then that the workers of now could run")
    return Case(works, fleet, history.settings())


def setting_of(case: Case) -> Setting:
    """What all policies have alike."""
    return Setting(case.workload, case.fleet, SystemClock(), case.setup)


def replay(case: Case, names: Names, *, as_json: bool) -> None:
    """Shows what each policy would have made of it, tenant by tenant too."""
    trials = tried(names, setting_of(case))
    if as_json:
        print_object(document(case, trials, by_tenant=True))
    else:
        draw(case, trials, by_tenant=True)
