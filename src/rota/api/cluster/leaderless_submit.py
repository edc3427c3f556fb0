"""Submissions while there is no leader: validated like the leader would, and stored in its inbox.

Also reads what applications submit in their own transactions (`rota.submit`). A key is looked up
before and after its entry is stored: before, because a leader may take the entry at any moment;
after, because the last leader may have accepted the same request just before it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.api.convert.jobs import UUID, JobBatch, job_id_of, spec_of
from rota.api.ids import IdMint
from rota.api.parsing.request import decode_json
from rota.core.commands import Key, NewJob, Reject, Submit
from rota.core.dependency_graph import find_cycle
from rota.core.errors import DependencyCycle, KeyReused, UnknownDependency
from rota.core.model import Instant, JobId, JobRecord, JobState, Life
from rota.core.outcome import JobsAccepted, decode_receipt
from rota.engine.inbox import UnreadableEntryError, encode_submission, read_submission
from rota.engine.ports import Clock, UnavailableError
from rota.store.protocol import InboxEntry, InboxKind, Store
from rota.wire.formats import dec_hook
from rota.wire.jobs import JobSpec
from rota.wire.limits import NAME_CHARS_MAX
from rota.wire.problems import ProblemError

_INVALID_NAME = "invalid"


class _Entry(msgspec.Struct):
    job_id: str
    spec: msgspec.Raw


class _Named(msgspec.Struct):
    name: str = ""


_entry = msgspec.json.Decoder(_Entry).decode
_named = msgspec.json.Decoder(_Named).decode
_spec = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class SubmittedSpecs:
    """Converts an entry of `rota.submit()` to a command, by the same rules as POST /jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, entry: InboxEntry) -> Submit | Reject:
        """Returns a Submit, or the Reject that says what is wrong.

        Raises UnreadableEntryError if nobody knows which job it is.
        """
        now = self._clock.now()
        try:
            return _submission(entry, now)
        except ProblemError as problem:
            why = _problem_text(problem)
        except RecursionError:
            why = "it is nested too deeply"
        except Exception as error:  # noqa: BLE001  (an application may have written anything)
            why = f"it cannot be read: {error}"
        return Reject(jobs=(_rejected_job(entry, now),), why=why)


def _submission(entry: InboxEntry, now: Instant) -> Submit:
    if entry.is_too_large:
        raise ProblemError(413, "too_large", "it is larger than any job may be")
    given = _entry(entry.body)
    spec = decode_json(_spec, JobSpec, bytes(given.spec))
    # The id that the batch mints is not used: this job has one already.
    (job,) = JobBatch([spec], IdMint(), now).new_jobs()
    job_id = job_id_of(given.job_id, "job_id")
    return Submit(jobs=(msgspec.structs.replace(job, id=job_id),))


def _rejected_job(entry: InboxEntry, now: Instant) -> NewJob:
    """Makes a job that shows what was sent, as far as that can be shown, and never runs."""
    job_id, raw, name = next(iter(entry.job_ids), None), b"{}", _INVALID_NAME
    try:
        given = _entry(entry.body)
        job_id, raw = JobId(given.job_id), bytes(given.spec)
        name = _shown_name(raw)
    except _UNREADABLE:
        pass
    if job_id is None or not UUID.match(job_id):
        raise UnreadableEntryError("it does not say which job it is")
    try:
        spec = spec_of(JobSpec(name=name, payload=msgspec.Raw(raw)), now, ())
    except ProblemError:
        spec = spec_of(JobSpec(name=name), now, ())
    return NewJob(id=job_id, spec=spec)


def _shown_name(raw: bytes) -> str:
    name = _named(raw).name
    return name if 0 < len(name) <= NAME_CHARS_MAX and name.isprintable() else _INVALID_NAME


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
        if entry.reason and not entry.is_refused:
            raise UnavailableError(f"the job {job_id} waits for the next leader: {entry.reason}")
        try:
            jobs = self._jobs_in(entry)
        except UnreadableEntryError as error:
            raise UnavailableError(f"the job {job_id} waits for a leader: {error}") from None
        return next((_record(new) for new in jobs if new.id == job_id), None)

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
            return self._read_spec(entry).jobs
        return read_submission(entry).jobs


def _promised(entry: InboxEntry, key: Key) -> JobsAccepted:
    try:
        submission = read_submission(entry)
    except UnreadableEntryError as error:
        detail = f"the submission with the key {key.key!r} waits for a leader: {error}"
        raise UnavailableError(detail) from None
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
