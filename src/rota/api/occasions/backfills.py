"""Backfills: runs of a schedule for a range of its past, and calling them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.api.customs.timetables import instant_in, preview_view
from rota.api.door.roles import Permission
from rota.api.limits import BACKFILL_SHOWN, OCCURRENCES_READ_AT_ONCE
from rota.api.occasions.schedules import existing
from rota.api.problems import invalid
from rota.api.recall import expect, post, post_recalling
from rota.api.routes import Call, NoQuery, Operation, Reply
from rota.core.commands import AnyInput, BackfillSchedule, CancelBackfill, Preloaded
from rota.core.limits import BACKFILL_JOBS_MAX, BACKFILL_PRIORITY_STEP
from rota.core.model import Instant, ScheduleId
from rota.core.outcome import Backfilled, CountReceipt
from rota.store.queries import OccurrenceQuery
from rota.wire.limits import PRIORITY_MAX
from rota.wire.queues import CountAnswer
from rota.wire.schedules import BackfillAnswer, BackfillSpec, ForeseenView


class PastRange(msgspec.Struct):
    """A range of a schedule's past, as its ledger has it."""

    missing: list[Instant]
    """Instants without a job."""
    done: int
    ranges: list[tuple[Instant, Instant]]
    """Records that stand for many instants."""


@Operation(
    "POST",
    "/schedules/{schedule_id}/backfill",
    "Run a schedule for a past range",
    tag="Schedules",
    permission=Permission.SUBMIT,
    body=BackfillSpec,
    answer=BackfillAnswer,
    status=200,
    also={201: BackfillAnswer},
    errors=(404,),
    description=(
        "Instants that have a job already are left out, so a repeat goes on where the "
        "last one stopped. 201 when jobs were made, 200 for a `dry_run`."
    ),
    examples={"body": "backfill_spec", "answer": "backfill"},
)
async def backfill_schedule(call: Call[BackfillSpec, NoQuery]) -> BackfillAnswer | Reply:
    """Runs for what has none in a past range, or what they would be."""
    schedule_id = existing(call).schedule.id
    start, end = _backfill_range(call)
    if call.body.dry_run:
        past = await _read_past(call, schedule_id, start, end)
        return _backfill_answer(call, schedule_id, past, None)
    backfill_id = call.state.ids.mint(call.deps.brain.clock.now())
    read: list[PastRange] = []

    async def look() -> Sequence[Any]:
        read[:] = [await _read_past(call, schedule_id, start, end)]
        return ()

    def build(recall: Preloaded | None) -> AnyInput:
        return BackfillSchedule(
            schedule_id=schedule_id,
            backfill_id=backfill_id,
            instants=tuple(read[0].missing),
            ranges=tuple(read[0].ranges),
            max_parallel=call.body.max_parallel,
            priority=_priority(call),
            key=call.key,
            preloaded=recall,
        )

    made = expect(await post_recalling(call, look, build), Backfilled)
    return Reply(_backfill_answer(call, schedule_id, read[0], made), {}, status=201)


def _backfill_range(call: Call[BackfillSpec, NoQuery]) -> tuple[Instant, Instant]:
    start, end = instant_in(call.body.start, "from"), instant_in(call.body.end, "to")
    assert start is not None
    assert end is not None
    if end < start:
        raise invalid("to", "`to` is before `from`")
    return start, end


async def _read_past(
    call: Call[Any, Any], schedule_id: ScheduleId, start: Instant, end: Instant
) -> PastRange:
    """What the timetable has in the range, less what the ledger has a job for."""
    end = min(end, existing(call).schedule.state.watermark)
    instants = call.deps.brain.instants(schedule_id, start, end, BACKFILL_JOBS_MAX + 1)
    if len(instants) > BACKFILL_JOBS_MAX:
        raise invalid("to", f"more than {BACKFILL_JOBS_MAX} runs: take a shorter range")
    done: dict[Instant, None] = {}
    ranges: list[tuple[Instant, Instant]] = []
    before = end + 1
    while True:
        page = await call.deps.catalog.find_occurrences(
            OccurrenceQuery(
                schedule_id=schedule_id,
                after=start - 1,
                before=before,
                limit=OCCURRENCES_READ_AT_ONCE,
            )
        )
        done |= {one.nominal: None for one in page if one.job_id is not None}
        ranges += [(one.nominal, one.until) for one in page if one.until is not None]
        if len(page) < OCCURRENCES_READ_AT_ONCE:
            break
        before = page[-1].nominal
    missing = [at for at in instants if at not in done]
    return PastRange(missing, len(instants) - len(missing), ranges)


def _priority(call: Call[BackfillSpec, NoQuery]) -> int:
    if call.body.priority is not None:
        return call.body.priority
    own = existing(call).schedule.definition.job.terms.priority
    return max(-PRIORITY_MAX, own - BACKFILL_PRIORITY_STEP)


def _backfill_answer(
    call: Call[Any, Any], schedule_id: ScheduleId, past: PastRange, made: Backfilled | None
) -> BackfillAnswer:
    return BackfillAnswer(
        backfill_id=None if made is None else made.backfill_id,
        count=len(past.missing) if made is None else len(made.job_ids),
        already=past.done,
        job_ids=[] if made is None else list(made.job_ids),
        items=_previewed(call, schedule_id, past.missing[:BACKFILL_SHOWN]),
        dry_run=made is None,
    )


def _previewed(
    call: Call[Any, Any], schedule_id: ScheduleId, instants: Sequence[Instant]
) -> list[ForeseenView]:
    brain = call.deps.brain
    return [preview_view(one) for at in instants for one in brain.foresee(schedule_id, at - 1, 1)]


@Operation(
    "POST",
    "/schedules/{schedule_id}/backfills/{backfill_id}/cancel",
    "Call off what is left of a backfill",
    tag="Schedules",
    permission=Permission.SUBMIT,
    answer=CountAnswer,
    errors=(404,),
    examples={"answer": "cancel_backfill"},
)
async def cancel_backfill(call: Call[None, NoQuery]) -> CountAnswer:
    """Calls off what is left of it."""
    schedule_id, backfill_id = existing(call).schedule.id, call.path["backfill_id"].lower()

    def build(recall: Preloaded | None) -> AnyInput:
        return CancelBackfill(
            schedule_id=schedule_id, backfill_id=backfill_id, key=call.key, preloaded=recall
        )

    return CountAnswer(expect(await post(call, build), CountReceipt).count)
