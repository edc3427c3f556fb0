"""Tries policies, which people name, on a workload, and shows the outcome side by side."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click
import msgspec

from rota.api.endpoints.policy import policy_of
from rota.cli.problems import Failure
from rota.cli.render import Column, Columns, console, show_table
from rota.cli.text import count, percent, plain, plural, span
from rota.core.commands import AnyInput
from rota.core.policy import PRESETS, Policy
from rota.simulate import chart
from rota.simulate.fleet import FleetPlan
from rota.simulate.metrics import JobHistory, TenantMetrics, tenant_metrics
from rota.simulate.study import (
    StudyResult,
    StudySetup,
    evaluate_policy,
    evaluate_policy_shaken,
    load,
    recorded_result,
    shortest_ms,
)
from rota.simulate.virtual_time import SimulationError
from rota.simulate.workload import Workload
from rota.wire.policy import PolicySpec
from rota.wire.units import dec_hook


class Case(NamedTuple):
    """Workload and machines to simulate under each policy."""

    workload: Workload
    fleet: FleetPlan
    setup: Sequence[AnyInput] = ()


def read_policy(path: Path) -> Policy:
    """Reads a TOML file: `preset = "easy"`, `beta = 3`; missing settings are the preset's."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        return policy_of(msgspec.convert(given, PolicySpec, dec_hook=dec_hook))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # of TOML, and of UTF-8
        raise Failure(f"{path}: no policy: {error}") from error


F = TypeVar("F", bound=Callable[..., Any])

RECORDED = "recorded"
"""Stands for what happened in truth."""
KNOWN = (*PRESETS, RECORDED)
FILE_END = ".toml"

Names: TypeAlias = dict[str, Policy | None]
"""Policies by name, in the order given; None: what was recorded."""


def policies(value: Any) -> Names:
    """Reads `fcfs,easy,ours.toml`."""
    names = [name.strip() for name in str(value).split(",") if name.strip()]
    for name in names:
        if name not in KNOWN and not name.endswith(FILE_END):
            raise click.BadParameter(
                f"there is no policy {name!r}: name {', '.join(KNOWN)} or a {FILE_END} file"
            )
    if not names:
        raise click.BadParameter(f"name some of {', '.join(KNOWN)}")
    return {name: _policy(name) for name in names}


def _policy(name: str) -> Policy | None:
    return read_policy(Path(name)) if name.endswith(FILE_END) else PRESETS.get(name)


def policies_option(command: F) -> F:
    """Adds `--policy`."""
    return click.option(
        "--policy",
        "names",
        type=policies,
        default="default",
        metavar="NAMES",
        help=f"Side by side: {','.join(KNOWN)} (as it was), or FILE.toml.",
    )(command)


def try_policies(
    names: Names, setting: StudySetup, shake: tuple[int, int] | None = None
) -> dict[str, StudyResult]:
    """Tries each policy; `shake`: by how many milliseconds, and how many runs."""
    return {name: _try_policy(name, policy, setting, shake) for name, policy in names.items()}


def _try_policy(
    name: str, policy: Policy | None, setting: StudySetup, shake: tuple[int, int] | None
) -> StudyResult:
    if policy is None:
        return _recorded_trial(setting)
    try:
        return (
            evaluate_policy(policy, setting)
            if shake is None
            else evaluate_policy_shaken(policy, setting, *shake)
        )
    except SimulationError as error:
        raise Failure(f"policy {name}: {error}") from error


def _recorded_trial(setting: StudySetup) -> StudyResult:
    found = recorded_result(setting.workload, setting.fleet)
    if found is None:
        raise Failure(f"{setting.workload.title} does not say when its jobs started")
    return found


TenantTrial: TypeAlias = tuple[str, str, TenantMetrics]
TENANT_COLUMNS: Columns[TenantTrial] = (
    Column("TENANT", lambda one: one[0], cut=True),
    Column("POLICY", lambda one: one[1]),
    Column("JOBS", lambda one: count(one[2].jobs), spare=1, right=True),
    Column("AVG WAIT", lambda one: span(one[2].avg_wait_s), right=True),
    Column("P95", lambda one: span(one[2].p95_wait_s), spare=2, right=True),
    Column("MAX", lambda one: span(one[2].max_wait_s), right=True),
    Column("SLOWDOWN", lambda one: f"{one[2].avg_bounded_slowdown:,.2f}", right=True),
)


def show_tenants(trials: Mapping[str, StudyResult]) -> None:
    """Prints a line for each tenant and policy."""
    found = {policy: tenant_metrics(made.job_history) for policy, made in trials.items()}
    tenants = next(iter(found.values()), {})
    rows = [(name, policy, found[policy][name]) for name in tenants for policy in found]
    show_table(TENANT_COLUMNS, rows, empty="no tenants")


NamedTrial: TypeAlias = tuple[str, StudyResult]
COLUMNS: Columns[NamedTrial] = (
    Column("POLICY", lambda one: one[0]),
    Column("AVG WAIT", lambda one: span(one[1].mean()["avg_wait_s"]), right=True),
    Column("P50", lambda one: span(one[1].mean()["p50_wait_s"]), spare=4, right=True),
    Column("P95", lambda one: span(one[1].mean()["p95_wait_s"]), spare=1, right=True),
    Column("MAX", lambda one: span(one[1].mean()["max_wait_s"]), right=True),
    Column("SLOWDOWN", lambda one: _slowdown(one[1]), right=True),
    Column("USED", lambda one: f"{one[1].mean()['utilisation'] * 100:.1f}%", right=True),
    Column("MAKESPAN", lambda one: span(one[1].mean()["makespan_s"]), spare=2, right=True),
    Column("EVICTED", lambda one: _mean_count(one[1], "preemptions"), spare=5, right=True),
    Column("WAITING", lambda one: _mean_count(one[1], "peak_waiting"), spare=3, right=True),
    Column("DECISIONS/S", lambda one: _mean_count(one[1], "decisions_per_s"), spare=6, right=True),
)
CHART_COLUMNS_MAX = 100
CHART_COLUMNS_MIN = 20


def trials_document(
    case: Case, trials: Mapping[str, StudyResult], *, by_tenant: bool
) -> dict[str, Any]:
    """Builds a document of all figures, for programs."""
    return {
        "trace": case.workload.title,
        "jobs": len(case.workload),
        "dropped": case.workload.dropped,
        "workers": case.fleet.workers,
        "cpus": case.fleet.cpu_milli / 1000,
        "load": _finite(load(case.workload, case.fleet)),
        "shortest_makespan_s": shortest_ms(case.workload, case.fleet) / 1000,
        "policies": {
            name: _figures(made)
            | ({"tenants": tenant_metrics(made.job_history)} if by_tenant else {})
            for name, made in trials.items()
        },
    }


def _figures(made: StudyResult) -> dict[str, Any]:
    figures: dict[str, Any] = dict(made.mean())
    if not made.is_single:
        figures |= {"runs": len(made.runs), "deviation": made.deviation()}
    return figures


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# For people


def draw_trials(case: Case, trials: Mapping[str, StudyResult], *, by_tenant: bool) -> None:
    """Prints a table and two charts."""
    click.echo(_headline(case))
    show_table(COLUMNS, list(trials.items()), empty="")
    if not all(made.is_single for made in trials.values()):
        click.echo(f"means over {plural(len(next(iter(trials.values())).runs), 'shaken run')}")
    if by_tenant:
        click.echo()
        show_tenants(trials)
    click.echo()
    for line in charts(
        {name: made.job_history for name, made in trials.items()}, case, _columns(trials)
    ):
        click.echo(line)


def _headline(case: Case) -> str:
    workload, fleet = case.workload, case.fleet
    left_out = f" ({count(workload.dropped)} left out)" if workload.dropped else ""
    machines = "" if fleet.workers == 1 else f" of {plural(fleet.workers, 'worker')}"
    pressure = _finite(load(workload, fleet))
    pressed = "" if pressure is None else f", load {pressure:.2f}"
    jobs = plural(len(workload), "job")
    cpus = f"{fleet.cpu_milli / 1000:,.6g} cpus"
    return f"{plain(workload.title)}: {jobs}{left_out} on {cpus}{machines}{pressed}"


def _slowdown(made: StudyResult) -> str:
    mean, spread = made.mean(), made.deviation()
    around = f" ± {spread['avg_bounded_slowdown']:,.2f}" if spread else ""
    return f"{mean['avg_bounded_slowdown']:,.2f}{around}"


def _mean_count(made: StudyResult, name: str) -> str:
    return count(round(made.mean()[name]))


def _columns(trials: Mapping[str, StudyResult]) -> int:
    """Counts the slices of time for which a line has space."""
    beside = max(len(name) for name in trials) + len("  max 000d00h")
    screen = console()
    wide = screen.width if screen.is_terminal else CHART_COLUMNS_MAX
    return max(CHART_COLUMNS_MIN, min(CHART_COLUMNS_MAX, wide - beside))


def charts(diaries: Mapping[str, JobHistory], case: Case, columns: int) -> Iterator[str]:
    """Draws waits and use over time, a line a policy."""
    until = chart.span_ms(diaries.values())
    edge = max(len(name) for name in diaries)
    yield f"mean wait of the jobs that came then, over {span(until / 1000)}"
    for name, diary in diaries.items():
        waits = chart.waits(diary, columns, until)
        yield f"{name:<{edge}} {chart.bars(waits, max(waits))} max {span(max(waits))}"
    yield "cpus in use"
    for name, diary in diaries.items():
        uses = chart.uses(diary, (columns, until), case.fleet.cpu_milli)
        yield f"{name:<{edge}} {chart.bars(uses, 1.0)} mean {percent(fmean(uses))}"
