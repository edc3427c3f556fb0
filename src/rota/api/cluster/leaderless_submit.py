"""Submissions while there is no leader: validated like the leader would, and stored in its inbox.

Also reads what applications submit in their own transactions (`rota.submit`). A key is looked up
before and after its entry is stored: before, because a leader may take the entry at any moment;
after, because the last leader may have accepted the same request just before it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.api.convert.jobs import JobBatch, spec_of
from rota.api.ids import IdMint
from rota.api.parsing.request import decode_json
from rota.core.commands import Key, NewJob, Reject, Submit
from rota.core.dependency_graph import find_cycle
from rota.core.errors import DependencyCycle, KeyReused, UnknownDependency
from rota.core.model import Instant, JobId, JobRecord, JobState, Life
from rota.core.outcome import JobsAccepted, decode_receipt
from rota.engine.inbox import decode_submission, encode_submission
from rota.engine.ports import Clock
from rota.store.protocol import InboxEntry, InboxKind, Store
from rota.wire.formats import dec_hook
from rota.wire.jobs import JobSpec
from rota.wire.limits import NAME_CHARS_MAX, PAYLOAD_BYTES_MAX
from rota.wire.problems import ProblemError

_INVALID_NAME = "invalid"


class _Entry(msgspec.Struct):
    job_id: str
    spec: msgspec.Raw


_entry = msgspec.json.Decoder(_Entry).decode
_spec = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook).decode


class SubmittedSpecs:
    """Converts an entry of `rota.submit()` to a command, by the same rules as POST /jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, body: bytes) -> Submit | Reject:
        """Returns a Submit, or the Reject that says what is wrong."""
        entry = _entry(body)
        job_id, now = JobId(entry.job_id), self._clock.now()
        raw = bytes(entry.spec)
        try:
            # The id that the batch mints is not used: this job has one already.
            (job,) = JobBatch([decode_json(_spec, JobSpec, raw)], IdMint(), now).new_jobs()
        except ProblemError as problem:
            return Reject(jobs=(_rejected_job(job_id, raw, now),), why=_problem_text(problem))
        return Submit(jobs=(msgspec.structs.replace(job, id=job_id),))


def _rejected_job(job_id: JobId, raw: bytes, now: Instant) -> NewJob:
    """Makes a job that shows what was sent and never runs."""
    given: dict[str, Any] = msgspec.json.decode(raw)
    name = given.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        name = _INVALID_NAME
    shown = raw if len(raw) <= PAYLOAD_BYTES_MAX else b"{}"
    spec = JobSpec(name=name, payload=msgspec.Raw(shown))
    return NewJob(id=job_id, spec=spec_of(spec, now, ()))


def _problem_text(problem: ProblemError) -> str:
    fields = "; ".join(f"{error.field}: {error.message}" for error in problem.errors)
    return fields or problem.detail


LEADERLESS = "leaderless"
"""Reason of a job that waits until a server leads."""


class LeaderlessInbox:
    """Inbox of the store, for submissions while no server leads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._journal = store.journal
        self._queries = store.queries
        self._read_spec = SubmittedSpecs(clock)

    async def submit(self, event: Submit) -> JobsAccepted:
        """Stores a submission durably; the next leader takes it in order of arrival."""
        key = event.key
        if key is None:
            await self._put(event, None)
            return _accepted(event)
        if first := await self._answered(key):
            return first
        entry = await self._put(event, key.key)
        if first := await self._answered(key):
            # The entry stays: another server may have stored the same request meanwhile and
            # answered with it. The next leader recognises the repeat by its key.
            return first
        return _promised(entry, key)

    async def accepted_earlier(self, key: Key) -> JobsAccepted | None:
        """Returns what a server without a leader answered to this key, if no leader has taken it
        yet."""
        entry = await self._journal.inbox_key(key.key)
        return None if entry is None else _promised(entry, key)

    async def find(self, job_id: JobId) -> JobRecord | None:
        """Returns a job that no leader has taken yet, as it will be."""
        entry = await self._journal.inbox_job(job_id)
        if entry is None:
            return None
        return next((_record(new) for new in self._jobs_in(entry) if new.id == job_id), None)

    async def check(self, jobs: Sequence[NewJob], known: Sequence[JobRecord]) -> None:
        """Refuses what a leader would refuse: dependencies that do not exist, and cycles.

        `known` are those in the store; others may wait in the inbox themselves.
        """
        inside: dict[JobId, list[JobId]] = {new.id: [] for new in jobs}
        outside = {job.id: None for job in known}
        for new in jobs:
            for dependency in new.spec.dependencies:
                if dependency.job_id in inside:
                    inside[new.id].append(dependency.job_id)
                elif dependency.job_id not in outside:
                    if await self._journal.inbox_job(dependency.job_id) is None:
                        detail = f"there is no job {dependency.job_id} to depend on"
                        raise UnknownDependency(detail, "dependencies")
                    outside[dependency.job_id] = None
        if path := find_cycle(inside):
            refs = {new.id: new.ref or new.id for new in jobs}
            raise DependencyCycle([refs[job_id] for job_id in path])

    async def _put(self, event: Submit, key: str | None) -> InboxEntry:
        job_ids = [new.id for new in event.jobs]
        return await self._journal.put_inbox(encode_submission(event), key, job_ids)

    async def _answered(self, key: Key) -> JobsAccepted | None:
        """Returns what a leader answered to this key."""
        record = await self._queries.key(key.key)
        if record is None:
            return None
        receipt = decode_receipt(record.receipt)
        if record.fingerprint != key.fingerprint or not isinstance(receipt, JobsAccepted):
            raise _reused(key)
        return receipt

    def _jobs_in(self, entry: InboxEntry) -> Sequence[NewJob]:
        if entry.kind == InboxKind.SPEC:
            return self._read_spec(entry.body).jobs
        return decode_submission(entry.body).jobs


def _promised(entry: InboxEntry, key: Key) -> JobsAccepted:
    submission = decode_submission(entry.body)
    if submission.key is None or submission.key.fingerprint != key.fingerprint:
        raise _reused(key)
    return _accepted(submission)


def _accepted(event: Submit) -> JobsAccepted:
    first = _record(event.jobs[0]) if len(event.jobs) == 1 else None
    return JobsAccepted(tuple(new.id for new in event.jobs), first)


def _record(new: NewJob) -> JobRecord:
    return JobRecord(new.id, new.spec, Life(JobState.PENDING, reason=LEADERLESS))


def _reused(key: Key) -> KeyReused:
    return KeyReused(f"the idempotency key {key.key!r} was used for another request")
