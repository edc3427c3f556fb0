"""Endpoints of the quarantine: show the jobs whose writes the tables refuse, and repair them."""

from __future__ import annotations

from rota.api.auth.roles import Permission
from rota.api.convert.quarantine import quarantined_job_view, repair_view
from rota.api.pagination import PageQuery, cut, read_cursor
from rota.api.router import Call, NoQuery, Operation
from rota.core.model import JobId
from rota.wire.quarantine import QuarantinePage, RepairSpec, RepairView


@Operation(
    "GET",
    "/quarantine",
    "List jobs in quarantine",
    tag="Service",
    permission=Permission.ADMINISTER,
    any_server=True,
    query=PageQuery,
    answer=QuarantinePage,
    description=(
        "Jobs whose changes the database's tables refuse, with the database's message and the "
        "first of these changes. The jobs run all the same, and nothing of them is lost."
    ),
    examples={"answer": "quarantine"},
)
async def list_quarantine(call: Call[None, PageQuery]) -> QuarantinePage:
    after = read_cursor(call.query.cursor)
    found = [
        one for one in await call.deps.journal.quarantine() if after is None or one.job_id > after
    ]
    items, next_cursor = cut(found, call.query.limit, lambda one: one.job_id)
    return QuarantinePage([quarantined_job_view(one) for one in items], next_cursor)


@Operation(
    "POST",
    "/quarantine/repair",
    "Repair jobs in quarantine",
    tag="Service",
    permission=Permission.ADMINISTER,
    any_server=True,
    body=RepairSpec,
    answer=RepairView,
    description=(
        "Writes to the tables what they refused before: of these jobs, or of all with `{}`. "
        "Remove the cause first. A job that fails again stays in quarantine. A repeat repairs what "
        "is left."
    ),
    examples={"body": "repair_spec", "answer": "repair"},
)
async def repair_quarantine(call: Call[RepairSpec, NoQuery]) -> RepairView:
    job_ids = [JobId(one.lower()) for one in call.body.job_ids]
    return repair_view(await call.deps.journal.repair(job_ids))
