"""Brings back what the scheduler no longer has in memory, and asks again when that was stale."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from rota.api.deps import AppDeps
from rota.api.limits import READ_AT_ONCE, RECALL_JOBS_MAX, RECALL_PAUSE_S, RECALL_TRIES
from rota.api.router import Call
from rota.api.tenant_scope import check_not_waiting_for_leader, check_own
from rota.core.commands import AnyInput, Key, Preloaded
from rota.core.errors import NotFound, StalePreload
from rota.core.model import JobId, JobRecord, JobState
from rota.core.outcome import AnyReceipt, JobsAccepted
from rota.store.batched_lookup import KeyStatus
from rota.store.protocol import Direction, QueryStore
from rota.wire.problems import ProblemError

R = TypeVar("R")
Build = Callable[[Preloaded | None], AnyInput]
Read = Callable[[], Awaitable[Sequence[JobRecord]]]

_UNUSED = KeyStatus(None, None, may_wait=False)


async def post(call: Call[Any, Any], build: Build) -> AnyReceipt:
    """An input that needs nothing of the past, but perhaps what its key was answered."""
    if call.key is None:
        return await call.deps.brain.post(build(None))
    return await post_recalling(call, _nothing, build)


async def post_about(call: Call[Any, Any], job_id: JobId, build: Build) -> AnyReceipt:
    """An input about one job: most are live, so the store is read only if this one is not."""
    await check_own(call, job_id)
    if call.key is None:
        try:
            return await call.deps.brain.post(build(None))
        except (NotFound, StalePreload):
            pass

    async def read() -> Sequence[JobRecord]:
        found = await call.deps.queries.jobs([job_id])
        if not found:
            await check_not_waiting_for_leader(call, job_id)
        return found

    return await post_recalling(call, read, build)


async def post_recalling(call: Call[Any, Any], read: Read, build: Build) -> AnyReceipt:
    """An input with what `read` finds; read and asked again if that changed in between."""
    brain = call.deps.brain
    for number in range(RECALL_TRIES):
        if number:
            await asyncio.sleep(RECALL_PAUSE_S * number)
        # The time must be taken first: the scheduler refuses what changed after it.
        at = brain.clock.now()
        jobs = tuple(await read())
        known = None
        if call.key is not None:
            look = await look_up_key(call.deps, call.key.key, waits=number > 0)
            if look.may_wait and (promised := await promised_to(call, call.key)):
                return promised
            known = look.record
            at = at if look.behind_since is None else min(at, look.behind_since)
        try:
            return await brain.post(build(Preloaded(at=at, jobs=jobs, key=known)))
        except StalePreload:
            continue
    raise StalePreload("what was read kept changing")


async def look_up_key(parts: AppDeps, key: str, *, waits: bool) -> KeyStatus:
    """What a key was answered, and since when the scheduler has to know it itself.

    The tables are a little behind, and what is not in them yet the scheduler remembers: nobody
    waits for the fold, unless that is further behind than the memory reaches. A new key is known to
    be one; only where there are other servers one of them may have promised something under it.
    """
    if waits:
        return KeyStatus(await parts.queries.key(key), None)
    others = parts.membership
    # A server that could promise something itself but sees nobody does not know that it is alone.
    is_alone = parts.leaderless_inbox is None if others is None else others.is_alone
    if is_alone and parts.brain.is_new_key(key):
        return _UNUSED
    return await parts.queries.key_at_once(key)


async def make_known(parts: AppDeps, key: Key, *, settles_ids: bool) -> None:
    """Something is about to be promised under this key: nobody may take it for a new one then.

    Neither this server, should it lead soon, nor a leader that is out of its reach and thinks that
    it is alone; but where the key settles the ids that one answers the same. Whoever takes the lead
    from now on looks around first.
    """
    parts.brain.promise_key(key.key)
    if settles_ids or parts.membership is None:
        return
    if parts.brain.standing().leader is not None:
        await parts.membership.wait_until_seen()


async def promised_to(call: Call[Any, Any], key: Key) -> JobsAccepted | None:
    """What a server that found no leader answered a moment ago, if no leader knows of it yet."""
    mailbox = call.deps.leaderless_inbox
    return None if mailbox is None else await mailbox.accepted_earlier(key)


async def post_start_over(call: Call[Any, Any], job_id: JobId, build: Build) -> AnyReceipt:
    """An input that starts a job over, and with it what was skipped because of it."""
    await check_own(call, job_id)
    upstream: list[JobRecord] = []

    async def read() -> Sequence[JobRecord]:
        jobs = await read_with_skipped(call.deps.queries, job_id)
        known = {job.id for job in jobs}
        needed = {d.job_id: None for job in jobs[1:] for d in job.spec.dependencies}
        upstream[:] = await read_upstream(call.deps.queries, [i for i in needed if i not in known])
        return jobs

    def with_upstream(recall: Preloaded | None) -> AnyInput:
        assert recall is not None
        return build(replace(recall, upstream=tuple(upstream)))

    return await post_recalling(call, read, with_upstream)


async def _nothing() -> Sequence[JobRecord]:
    return ()


async def read_jobs(queries: QueryStore, job_ids: Sequence[JobId]) -> list[JobRecord]:
    """Any number of jobs, a bounded number at a time."""
    found: list[JobRecord] = []
    for part in _parts(job_ids):
        found += await queries.jobs(part)
    return found


async def read_upstream(queries: QueryStore, job_ids: Sequence[JobId]) -> list[JobRecord]:
    """Jobs of which only the state matters, so what they carry is left behind.

    Not that of one on the shelf: whoever is waited for comes into memory, and whole.
    """
    found: list[JobRecord] = []
    for part in _parts(job_ids):
        found += [_bare(job) for job in await queries.jobs(part)]
    return found


def _parts(job_ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    if len(job_ids) > RECALL_JOBS_MAX:
        detail = f"this touches more than {RECALL_JOBS_MAX} earlier jobs"
        raise ProblemError(422, "too_much", detail)
    for start in range(0, len(job_ids), READ_AT_ONCE):
        yield job_ids[start : start + READ_AT_ONCE]


def _bare(job: JobRecord) -> JobRecord:
    if job.life.line:
        return job
    spec = replace(job.spec, task=b"", payload=b"", dependencies=())
    return JobRecord(job.id, spec, replace(job.life, result=None, error=None))


async def read_with_skipped(queries: QueryStore, job_id: JobId) -> list[JobRecord]:
    """A job and all that was skipped because of it, however far down."""
    found = await queries.jobs([job_id])
    seen = {job_id: True}
    level = [job_id] if found else []
    while level:
        below: list[JobId] = []
        for start in range(0, len(level), READ_AT_ONCE):
            part = level[start : start + READ_AT_ONCE]
            for edge in await queries.edges(part, Direction.DOWNSTREAM):
                if edge.child not in seen:
                    seen[edge.child] = True
                    below.append(edge.child)
        jobs = await read_jobs(queries, below)
        skipped = [job for job in jobs if job.life.state is JobState.SKIPPED]
        found += skipped
        if len(found) > RECALL_JOBS_MAX:
            detail = f"more than {RECALL_JOBS_MAX} skipped jobs hang on {job_id}"
            raise ProblemError(422, "too_much", detail)
        level = [job.id for job in skipped]
    return found


def expect(receipt: AnyReceipt, kind: type[R]) -> R:
    """The receipt that this input always gets."""
    assert isinstance(receipt, kind), f"{receipt!r} where {kind.__name__} was due"
    return receipt
