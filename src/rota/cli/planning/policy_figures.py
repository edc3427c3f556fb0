"""Shows what policies made of a workload: a table and charts, or a document for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import click

from rota.cli.planning.tenant_figures import show_tenants
from rota.cli.planning.workloads import Case
from rota.cli.render import Column, Row, console, show_table
from rota.cli.text import count, percent, plain, plural, span
from rota.simulate import chart
from rota.simulate.diary import Diary
from rota.simulate.metrics import tenant_figures
from rota.simulate.study import Trial, load, shortest_ms

COLUMNS = (
    Column("POLICY"),
    Column("AVG WAIT", right=True),
    Column("P50", spare=4, right=True),
    Column("P95", spare=1, right=True),
    Column("MAX", right=True),
    Column("SLOWDOWN", right=True),
    Column("USED", right=True),
    Column("MAKESPAN", spare=2, right=True),
    Column("EVICTED", spare=5, right=True),
    Column("WAITING", spare=3, right=True),
    Column("DECISIONS/S", spare=6, right=True),
)
CHART_COLUMNS_MAX = 100
CHART_COLUMNS_MIN = 20


def document(case: Case, trials: Mapping[str, Trial], *, by_tenant: bool) -> dict[str, Any]:
    """All figures, for programs."""
    return {
        "trace": case.workload.title,
        "jobs": len(case.workload),
        "dropped": case.workload.dropped,
        "workers": case.fleet.workers,
        "cpus": case.fleet.cpu_milli / 1000,
        "load": _finite(load(case.workload, case.fleet)),
        "shortest_makespan_s": shortest_ms(case.workload, case.fleet) / 1000,
        "policies": {
            name: _figures(made) | ({"tenants": tenant_figures(made.diary)} if by_tenant else {})
            for name, made in trials.items()
        },
    }


def _figures(made: Trial) -> dict[str, Any]:
    figures: dict[str, Any] = dict(made.mean())
    if not made.is_single:
        figures |= {"runs": len(made.runs), "deviation": made.deviation()}
    return figures


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# For people


def draw(case: Case, trials: Mapping[str, Trial], *, by_tenant: bool) -> None:
    """A table and two charts."""
    click.echo(_headline(case))
    show_table(COLUMNS, [_row(name, made) for name, made in trials.items()], empty="")
    if not all(made.is_single for made in trials.values()):
        click.echo(f"means over {plural(len(next(iter(trials.values())).runs), 'shaken run')}")
    if by_tenant:
        click.echo()
        show_tenants(trials)
    click.echo()
    for line in charts({name: made.diary for name, made in trials.items()}, case, _columns(trials)):
        click.echo(line)


def _headline(case: Case) -> str:
    workload, fleet = case.workload, case.fleet
    left_out = f" ({count(workload.dropped)} left out)" if workload.dropped else ""
    machines = "" if fleet.workers == 1 else f" of {plural(fleet.workers, 'worker')}"
    pressure = _finite(load(workload, fleet))
    told = "" if pressure is None else f", load {pressure:.2f}"
    jobs = plural(len(workload), "job")
    cpus = f"{fleet.cpu_milli / 1000:,.6g} cpus"
    return f"{plain(workload.title)}: {jobs}{left_out} on {cpus}{machines}{told}"


def _row(name: str, made: Trial) -> Row:
    mean, spread = made.mean(), made.deviation()
    slowdown = f"{mean['avg_bounded_slowdown']:,.2f}"
    if spread:
        slowdown += f" ± {spread['avg_bounded_slowdown']:,.2f}"
    waits = ("avg_wait_s", "p50_wait_s", "p95_wait_s", "max_wait_s")
    return (
        name,
        *(span(mean[one]) for one in waits),
        slowdown,
        f"{mean['utilisation'] * 100:.1f}%",
        span(mean["makespan_s"]),
        count(round(mean["preemptions"])),
        count(round(mean["peak_waiting"])),
        count(round(mean["decisions_per_s"])),
    )


def _columns(trials: Mapping[str, Trial]) -> int:
    """How many slices of time a line has room for."""
    beside = max(len(name) for name in trials) + len("  max 000d00h")
    screen = console()
    wide = screen.width if screen.is_terminal else CHART_COLUMNS_MAX
    return max(CHART_COLUMNS_MIN, min(CHART_COLUMNS_MAX, wide - beside))


def charts(diaries: Mapping[str, Diary], case: Case, columns: int) -> Iterator[str]:
    """Lines that show waits and use over time, a line a policy."""
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
