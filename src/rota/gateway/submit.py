"""New jobs: each goes to its tenant's cell, and a batch to one cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from rota.gateway.desk import GatewayRequest
from rota.gateway.fleet import CellDirectory
from rota.gateway.health import Cell
from rota.gateway.relay import relay
from rota.wire.problems import FieldError, ProblemError

DEFAULT_TENANT = "default"


class Template(msgspec.Struct):
    """As much of a job as says where it goes; all else is the cell's to check."""

    tenant: str = DEFAULT_TENANT
    dependencies: Sequence[Any] = ()


class _Batch(msgspec.Struct):
    jobs: list[Template]


async def submit_job(visit: GatewayRequest) -> Response:
    """To the cell of the job's tenant."""
    try:
        job = msgspec.json.decode(visit.body, type=Template)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # What is wrong with it, a cell says best.
        return await relay(visit, visit.context.directory.any_cell())
    return await relay(visit, cell_of_jobs(visit.context.directory, [job]))


async def submit_batch(visit: GatewayRequest) -> Response:
    """To the one cell of all its tenants."""
    try:
        jobs = msgspec.json.decode(visit.body, type=_Batch).jobs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return await relay(visit, visit.context.directory.any_cell())
    if not jobs:
        return await relay(visit, visit.context.directory.any_cell())
    return await relay(visit, cell_of_jobs(visit.context.directory, jobs, "jobs[{}]."))


def cell_of_jobs(fleet: CellDirectory, jobs: Sequence[Template], where: str = "") -> Cell:
    """The one cell that takes them all; refuses what would need two."""
    homes = {
        tenant: fleet.of_tenant(tenant) for tenant in dict.fromkeys(job.tenant for job in jobs)
    }
    first = jobs[0]
    cell = homes[first.tenant]
    for number, job in enumerate(jobs):
        if homes[job.tenant] is not cell:
            raise _elsewhere(
                where.format(number) + "tenant",
                f"tenant {job.tenant!r} is in cell {homes[job.tenant].name} and {first.tenant!r}"
                f" in cell {cell.name}: a batch goes to one cell, so send one for each",
            )
        for place, needed in enumerate(job.dependencies):
            _check_dependency(
                fleet, cell, job, needed, f"{where.format(number)}dependencies[{place}]"
            )
    return cell


def _check_dependency(
    fleet: CellDirectory, cell: Cell, job: Template, needed: Any, field: str
) -> None:
    job_id = needed.get("job_id") if isinstance(needed, dict) else needed
    there = fleet.of_id(job_id) if isinstance(job_id, str) else None
    if there is not None and there is not cell:
        raise _elsewhere(
            field,
            f"job {job_id} is in cell {there.name}, and tenant {job.tenant!r} submits to cell"
            f" {cell.name}: jobs wait only for jobs of their own cell"
            f" (`rota gateway --pin {job.tenant}={there.name}` keeps the tenant there)",
        )


def _elsewhere(field: str, message: str) -> ProblemError:
    detail = f"{field}: {message}"
    return ProblemError(422, "other_cell", detail, errors=[FieldError(field, message)])
