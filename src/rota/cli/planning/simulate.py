"""Replays a workload on a fleet that need not exist, under one policy or several."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rota.cli.options import NumberRange, duration, json_option, size
from rota.cli.planning.policy_trials import Names, document, draw, policies_option, tried
from rota.cli.planning.workloads import Case, case_of
from rota.cli.problems import Failure
from rota.cli.render import print_object
from rota.engine.clock import SystemClock
from rota.simulate.limits import PROCESSORS_MAX, RUNS_MAX, WORKERS_SIMULATED_MAX
from rota.simulate.study import Setting, Trial
from rota.simulate.swf import TENANTS

SHAKEN_RUNS = 5
"""One shaken run says no more than one that is not."""

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--swf", type=_file, help="Run a log in Standard Workload Format.")
@click.option("--dag", type=_file, help="Run a workflow of WfCommons (JSON).")
@click.option("--trace", type=_file, help="Run what `rota history export` wrote.")
@click.option(
    "--synthetic", metavar="NAME=VALUE,…", help="Run what is made up: jobs=10000,load=0.9."
)
@click.option(
    "--cpus", type=click.IntRange(1, PROCESSORS_MAX), help="On one pool of so many processors,"
)
@click.option(
    "--workers", type=click.IntRange(1, WORKERS_SIMULATED_MAX), help="or on so many workers"
)
@click.option("--cpu", type=NumberRange(0, 1e6, min_open=True), help="with so many cpus each (1)")
@click.option("--memory", type=size, metavar="SIZE", help="and so much memory each.")
@policies_option
@click.option(
    "--tenants",
    type=click.Choice(list(TENANTS)),
    help="Whose the jobs of a log are: all one tenant's, or by this field.",
)
@click.option("--by-tenant", is_flag=True, help="Say what it comes to for each tenant.")
@click.option(
    "--pace",
    type=NumberRange(0, 1000, min_open=True),
    help="Stretch the time between arrivals: 0.5 doubles the load.",
)
@click.option(
    "--load",
    type=NumberRange(0, 100, min_open=True),
    help="Stretch it until the load is this.",
)
@click.option(
    "--shake",
    type=duration,
    metavar="TIME",
    help="Move each arrival by up to so much: one log is one draw.",
)
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), help="So many shaken runs (5).")
@click.option(
    "--starts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write when each job started, as CSV: job,start.",
)
@json_option
def simulate(*, names: Names, as_json: bool, **given: Any) -> None:
    """Replay a workload under virtual time, with the scheduler that servers run.

    Nothing is started and no server is asked. The figures are explained in docs/guide/simulate.md.
    """
    _refuse_nonsense(given)
    case = case_of(given)
    setting = Setting(case.workload, case.fleet, SystemClock(), case.setup)
    shake = None if given["shake"] is None else (given["shake"].ms, given["runs"] or SHAKEN_RUNS)
    trials = tried(names, setting, shake)
    if given["starts"] is not None:
        _write_starts(given["starts"], case, trials)
    if as_json:
        print_object(document(case, trials, by_tenant=given["by_tenant"]))
    else:
        draw(case, trials, by_tenant=given["by_tenant"])


def _refuse_nonsense(given: Mapping[str, Any]) -> None:
    if given["shake"] is None and given["runs"] is not None:
        raise click.UsageError("all runs would be alike: say --shake TIME too")
    if given["shake"] is not None and (given["starts"] is not None or given["by_tenant"]):
        raise click.UsageError("--starts and --by-tenant are of one run: leave out --shake")


def _write_starts(path: Path, case: Case, trials: Mapping[str, Trial]) -> None:
    """Writes a line for each job: its name in the trace and its start, and which policy."""
    named = len(trials) > 1
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow([*(["policy"] if named else []), "job", "start"])
            for name, made in trials.items():
                head = [name] if named else []
                for work, start_ms in zip(case.workload, made.diary.start, strict=True):
                    table.writerow([*head, work.label, _seconds(start_ms)])
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def _seconds(ms: int) -> str:
    """Writes seconds exactly, without decimals if there are none."""
    return str(ms // 1000) if ms % 1000 == 0 else f"{ms / 1000:.3f}"
