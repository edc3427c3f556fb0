"""Shows what policies come to for each tenant, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from rota.cli.render import Column, Row, show_table
from rota.cli.text import count, span
from rota.simulate.metrics import TenantFigures, tenant_figures
from rota.simulate.study import Trial

COLUMNS = (
    Column("TENANT", cut=True),
    Column("POLICY"),
    Column("JOBS", spare=1, right=True),
    Column("AVG WAIT", right=True),
    Column("P95", spare=2, right=True),
    Column("MAX", right=True),
    Column("SLOWDOWN", right=True),
)


def show_tenants(trials: Mapping[str, Trial]) -> None:
    """A line for each tenant and policy, tenant by tenant."""
    found = {policy: tenant_figures(made.diary) for policy, made in trials.items()}
    tenants = next(iter(found.values()), {})
    rows = [_row(name, policy, found[policy][name]) for name in tenants for policy in found]
    show_table(COLUMNS, rows, empty="no tenants")


def _row(tenant: str, policy: str, figures: TenantFigures) -> Row:
    return (
        tenant,
        policy,
        count(figures.jobs),
        span(figures.avg_wait_s),
        span(figures.p95_wait_s),
        span(figures.max_wait_s),
        f"{figures.avg_bounded_slowdown:,.2f}",
    )
