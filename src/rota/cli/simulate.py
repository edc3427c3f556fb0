"""Simulates a workload (synthetic, SWF, WfCommons, a recorded history) on machines that need not
exist, under one policy or several, and shows the outcomes side by side.
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click
import msgspec

from rota.api.endpoints.policy import policy_of
from rota.cli.options import NumberRange, duration, json_option, size
from rota.cli.problems import Failure
from rota.cli.render import (
    Column,
    Columns,
    console,
    count,
    percent,
    plain,
    plural,
    print_object,
    show_table,
    span,
)
from rota.core.commands import AnyInput
from rota.core.policy import PRESETS, Policy
from rota.engine.clock import SystemClock
from rota.simulate import chart
from rota.simulate.fleet import FleetPlan, single_machine_fleet, uniform_fleet
from rota.simulate.limits import PROCESSORS_MAX, RUNS_MAX, SYNTHETIC_JOBS_MAX, WORKERS_SIMULATED_MAX
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
from rota.simulate.trace_readers import (
    SWF_TENANTS,
    TraceError,
    read_history,
    read_swf,
    read_workflow,
)
from rota.simulate.virtual_time import SimulationError
from rota.simulate.workload import SyntheticSpec, SyntheticWorkload, Workload, fitting, paced
from rota.wire.formats import dec_hook, parse_duration, parse_size
from rota.wire.policy import PolicySpec


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
        raise Failure(f"{path} is not a policy: {error}") from error


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
        help=f"Policies to compare: {','.join(KNOWN)} (what happened), or FILE.toml.",
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


def charts(histories: Mapping[str, JobHistory], case: Case, columns: int) -> Iterator[str]:
    """Draws waits and use over time, a line a policy."""
    until = chart.span_ms(histories.values())
    edge = max(len(name) for name in histories)
    yield f"mean wait of the jobs that came then, over {span(until / 1000)}"
    for name, history in histories.items():
        waits = chart.waits(history, columns, until)
        yield f"{name:<{edge}} {chart.bars(waits, max(waits))} max {span(max(waits))}"
    yield "cpus in use"
    for name, history in histories.items():
        uses = chart.uses(history, (columns, until), case.fleet.cpu_milli)
        yield f"{name:<{edge}} {chart.bars(uses, 1.0)} mean {percent(fmean(uses))}"


SOURCES = ("swf", "dag", "trace", "synthetic")


def case_of(given: Mapping[str, Any]) -> Case:
    """Reads what the options ask for; jobs that fit no machine are left out."""
    named = [name for name in SOURCES if given[name] is not None]
    if len(named) != 1:
        raise click.UsageError("name the workload: one of --swf, --dag, --trace and --synthetic")
    try:
        case = _READERS[named[0]](given[named[0]], given, _fleet(given))
    except TraceError as error:
        raise Failure(str(error)) from error
    fits = fitting(case.workload, case.fleet.can_run) if named != ["synthetic"] else case.workload
    hint = _memory_hint(case) if fits.dropped > case.workload.dropped else ""
    if not len(fits):
        raise Failure(f"{fits.title}: none of its jobs fits a machine of this fleet{hint}")
    if hint:
        click.echo(f"{fits.title}{hint}", err=True)
    return case._replace(workload=_at_pace(fits, case.fleet, given))


def _memory_hint(case: Case) -> str:
    """Says why jobs that ask for memory are left out, where no machine was given any."""
    if any(alike.capacity.memory for alike in case.fleet.machines):
        return ""
    asking = sum(work.terms.needs.resources.memory > 0 for work in case.workload)
    if not asking:
        return ""
    left_out = f"{plural(asking, 'job')} that asked for memory left out"
    return f": {left_out}, because this fleet has none: add --memory SIZE with --workers or --cpus"


def _swf(path: Path, given: Mapping[str, Any], fleet: FleetPlan | None) -> Case:
    log = read_swf(path, cpus=given["cpus"], tenants=given["tenants"])
    if fleet is None and log.processors is not None:
        fleet = single_machine_fleet(log.processors)
    return Case(log, _needed(fleet))


def _dag(path: Path, given: Mapping[str, Any], fleet: FleetPlan | None) -> Case:
    return Case(read_workflow(path, with_memory=given["memory"] is not None), _needed(fleet))


def _trace(path: Path, given: Mapping[str, Any], fleet: FleetPlan | None) -> Case:
    history = read_history(path)
    return Case(history, _needed(fleet or history.fleet()), history.settings())


def _synthetic(text: str, given: Mapping[str, Any], fleet: FleetPlan | None) -> Case:
    machines = _needed(fleet)
    recipe = recipe_of(text, machines)
    made = SyntheticWorkload(recipe)
    for cpus in (recipe.cpu_min, recipe.cpu_max):
        if not machines.can_run("default", made.needs(cpus)):
            raise Failure(f"a job of {cpus} cpus fits no machine of this fleet")
    return Case(made, machines)


_READERS: Mapping[str, Callable[[Any, Mapping[str, Any], FleetPlan | None], Case]] = {
    "swf": _swf,
    "dag": _dag,
    "trace": _trace,
    "synthetic": _synthetic,
}


# The machines


def _fleet(given: Mapping[str, Any]) -> FleetPlan | None:
    cpus, workers, cpu, memory = (given[name] for name in ("cpus", "workers", "cpu", "memory"))
    if cpus is not None and (workers is not None or cpu is not None):
        raise click.UsageError("--cpus is one pool of processors: leave out --workers and --cpu")
    if cpus is not None:
        return single_machine_fleet(cpus, memory.bytes if memory is not None else 0)
    if workers is None and cpu is None and memory is None:
        return None
    if workers is None:
        raise click.UsageError("--cpu and --memory describe one worker: add --workers N")
    return uniform_fleet(
        workers, round((cpu or 1) * 1000), memory.bytes if memory is not None else 0
    )


def _needed(fleet: FleetPlan | None) -> FleetPlan:
    if fleet is None:
        raise click.UsageError("name the machines: --cpus N, or --workers N --cpu C")
    return fleet


def _at_pace(workload: Workload, fleet: FleetPlan, given: Mapping[str, Any]) -> Workload:
    """Speeds the workload up or down, if that was asked for."""
    factor = given["pace"]
    if given["load"] is not None:
        if factor is not None:
            raise click.UsageError("--pace and --load both set the pace: give one of them")
        factor = load(workload, fleet) / given["load"]
        if factor == float("inf"):
            raise Failure(f"{workload.title}: all jobs come at once, so no pace gives a load")
    return workload if factor is None else paced(workload, factor)


# What is made up


def recipe_of(text: str, fleet: FleetPlan) -> SyntheticSpec:
    """Reads `jobs=10000,rate=20/s,run=60s,cpu=1-4,…`."""
    values: dict[str, Any] = {}
    wanted_load: float | None = None
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = part.partition("=")
        read = _PARTS.get(name)
        if read is None or not equals:
            known = ", ".join(_PARTS)
            raise click.BadParameter(f"{part!r}: write name=value with one of {known}")
        try:
            found = read(value)
        except ValueError as error:
            raise click.BadParameter(f"{part!r}: {error}", param_hint="'--synthetic'") from error
        if name == "load":
            wanted_load = found["load"]
        else:
            values |= found
    recipe = SyntheticSpec(**values)
    if wanted_load is None:
        return recipe
    if "rate" in values:
        raise click.BadParameter("rate and load both set the pace: give one of them")
    return SyntheticSpec(**values, rate=wanted_load * fleet.cpu_milli / recipe.cpu_ms)


def _whole(name: str, most: int) -> Callable[[str], dict[str, Any]]:
    def read(text: str) -> dict[str, Any]:
        value = int(text)
        if not 0 < value <= most:
            raise ValueError(f"between 1 and {most:,}")
        return {name: value}

    return read


def _positive(name: str, most: float, least: float = 0.0) -> Callable[[str], dict[str, Any]]:
    def read(text: str) -> dict[str, Any]:
        value = float(text)
        if not least <= value <= most:
            raise ValueError(f"between {least:g} and {most:g}")
        return {name: value}

    return read


def _rate(text: str) -> dict[str, Any]:
    number, _, per = text.partition("/")
    length = parse_duration(f"1{per}" if per.isalpha() else per or "1s")
    if not length.ms or not 0 <= float(number) <= 1e9:
        raise ValueError("arrivals in a length of time, such as 20/s")
    return {"rate": float(number) / length.seconds}


def _run_time(text: str) -> dict[str, Any]:
    return {"run_ms": max(1, parse_duration(text).ms)}


def _cpu(text: str) -> dict[str, Any]:
    low, _, high = text.partition("-")
    least, most = int(low), int(high or low)
    if not 0 < least <= most <= PROCESSORS_MAX:
        raise ValueError("a whole number of cpus, or from and to: 1-4")
    return {"cpu_min": least, "cpu_max": most}


def _memory(text: str) -> dict[str, Any]:
    return {"memory": parse_size(text).bytes}


def _estimates(text: str) -> dict[str, Any]:
    if text == "none":
        return {"overestimate": None}
    if text == "exact":
        return {"overestimate": 1.0}
    return _positive("overestimate", 1000.0, 1.0)(text)


_PARTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "jobs": _whole("jobs", SYNTHETIC_JOBS_MAX),
    "rate": _rate,
    "load": _positive("load", 100.0, 0.001),
    "run": _run_time,
    "spread": _positive("spread", 5.0),
    "cpu": _cpu,
    "memory": _memory,
    "tenants": _whole("tenants", 100_000),
    "estimates": _estimates,
    "seed": _whole("seed", 1 << 62),
}


SHAKEN_RUNS = 5
"""One shaken run says no more than one that is not."""

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--swf", type=_file, help="Simulate a log in Standard Workload Format.")
@click.option("--dag", type=_file, help="Simulate a workflow of WfCommons (JSON).")
@click.option("--trace", type=_file, help="Simulate a history from `rota history export`.")
@click.option(
    "--synthetic", metavar="NAME=VALUE,…", help="Simulate generated jobs: jobs=10000,load=0.9."
)
@click.option(
    "--cpus", type=click.IntRange(1, PROCESSORS_MAX), help="On one pool of this many processors."
)
@click.option(
    "--workers", type=click.IntRange(1, WORKERS_SIMULATED_MAX), help="On this many workers."
)
@click.option(
    "--cpu", type=NumberRange(0, 1e6, min_open=True), help="Cores of each worker; default: 1."
)
@click.option("--memory", type=size, metavar="SIZE", help="Memory of each worker.")
@policies_option
@click.option(
    "--tenants",
    type=click.Choice(list(SWF_TENANTS)),
    help="Tenants of a log's jobs: a single one, or by this field.",
)
@click.option("--by-tenant", is_flag=True, help="Show results for each tenant.")
@click.option(
    "--pace",
    type=NumberRange(0, 1000, min_open=True),
    help="Multiply the time between arrivals: 0.5 doubles the load.",
)
@click.option(
    "--load",
    type=NumberRange(0, 100, min_open=True),
    help="Change the time between arrivals until the load is this.",
)
@click.option(
    "--shake",
    type=duration,
    metavar="TIME",
    help="Move each arrival randomly by up to this much, in several runs.",
)
@click.option(
    "--runs", type=click.IntRange(1, RUNS_MAX), help="Number of runs with --shake; default: 5."
)
@click.option(
    "--starts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the start of each job to this CSV file: job,start.",
)
@json_option
def simulate(*, names: Names, as_json: bool, **given: Any) -> None:
    """Simulate a workload in virtual time, with the scheduler that servers use.

    It starts nothing and needs no server. docs/guide/simulate.md explains the results.
    """
    _check_options(given)
    case = case_of(given)
    setting = StudySetup(case.workload, case.fleet, SystemClock(), case.setup)
    shake = None if given["shake"] is None else (given["shake"].ms, given["runs"] or SHAKEN_RUNS)
    trials = try_policies(names, setting, shake)
    if given["starts"] is not None:
        _write_starts(given["starts"], case, trials)
    if as_json:
        print_object(trials_document(case, trials, by_tenant=given["by_tenant"]))
    else:
        draw_trials(case, trials, by_tenant=given["by_tenant"])


def _check_options(given: Mapping[str, Any]) -> None:
    if given["shake"] is None and given["runs"] is not None:
        raise click.UsageError("all runs would be equal: add --shake TIME")
    if given["shake"] is not None and (given["starts"] is not None or given["by_tenant"]):
        raise click.UsageError("--starts and --by-tenant are of one run: leave out --shake")


def _write_starts(path: Path, case: Case, trials: Mapping[str, StudyResult]) -> None:
    """Writes a line for each job: its name in the trace and its start, and which policy."""
    named = len(trials) > 1
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow([*(["policy"] if named else []), "job", "start"])
            for name, made in trials.items():
                head = [name] if named else []
                for work, start_ms in zip(case.workload, made.job_history.start, strict=True):
                    table.writerow([*head, work.label, _seconds(start_ms)])
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error


def _seconds(ms: int) -> str:
    """Writes seconds exactly, without decimals if there are none."""
    return str(ms // 1000) if ms % 1000 == 0 else f"{ms / 1000:.3f}"
