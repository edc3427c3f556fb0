"""Reads what applications submit inside their own transactions; what is wrong fails as a job."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api.customs.translate import JobBatch, spec_of
from rota.api.ids import IdMint
from rota.api.reading.bodies import decode_json
from rota.core.commands import NewJob, Reject, Submit
from rota.core.model import Instant, JobId
from rota.engine.ports import Clock
from rota.wire.jobs import JobSpec
from rota.wire.limits import NAME_CHARS_MAX, PAYLOAD_BYTES_MAX
from rota.wire.problems import ProblemError
from rota.wire.units import dec_hook

_INVALID_NAME = "invalid"


class _Entry(msgspec.Struct):
    job_id: str
    spec: msgspec.Raw


_entry = msgspec.json.Decoder(_Entry).decode
_spec = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook).decode


class SubmittedSpecs:
    """Turns an entry of `rota.submit()` into an input, by the same rules as POST /jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, body: bytes) -> Submit | Reject:
        """A Submit, or the Reject that says what is wrong."""
        entry = _entry(body)
        job_id, now = JobId(entry.job_id), self._clock.now()
        raw = bytes(entry.spec)
        try:
            # The batch mints an id of its own, which is not used: this job has one already.
            (job,) = JobBatch([decode_json(_spec, JobSpec, raw)], IdMint(), now).new_jobs()
        except ProblemError as problem:
            return Reject(jobs=(_rejected_job(job_id, raw, now),), why=_problem_text(problem))
        return Submit(jobs=(msgspec.structs.replace(job, id=job_id),))


def _rejected_job(job_id: JobId, raw: bytes, now: Instant) -> NewJob:
    """A job that shows what was sent, and could never run."""
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
