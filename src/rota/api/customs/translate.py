"""Wire to core: what was sent becomes an input. views.py is the way back."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple, TypeVar

from msgspec import UnsetType
from msgspec.structs import replace

from rota.api.customs.banding import group_of, with_placement
from rota.api.customs.deadlines import finish_by_of
from rota.api.ids import IdMint
from rota.api.limits import FUNCTIONS_REMEMBERED_MAX, INSTANT_MAX
from rota.api.problems import invalid
from rota.api.reading.bodies import check_depth, read_json
from rota.core.commands import NewJob
from rota.core.errors import DependencyCycle, Invalid, UnknownDependency
from rota.core.model import (
    Backoff,
    Concurrency,
    Dependency,
    Instant,
    JobId,
    Millis,
    Needs,
    Resources,
    RetryPolicy,
    Semantics,
    Spec,
    Terms,
    When,
)
from rota.wire.jobs import (
    EMPTY_PAYLOAD,
    PLAIN_REQUIREMENTS,
    PLAIN_RETRY,
    BatchJobSpec,
    DependencySpec,
    JobSpec,
    Requirements,
    RetrySpec,
)
from rota.wire.limits import (
    PAYLOAD_BYTES_MAX,
    TASK_BYTES_MAX,
)
from rota.wire.problems import ProblemError
from rota.wire.tasks import FUNCTION_CAPABILITY, HttpCall, PythonCall, implied_capabilities
from rota.wire.units import ByteSize, Duration, encode, milli, to_instant
from rota.wire.workers import ResourcesSpec

T = TypeVar("T")

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
REF = "ref:"
_EMPTY_PAYLOAD = b"{}"
_NULL = b"null"
_terms_key = attrgetter(
    *("name", "queue", "tenant", "priority", "task", "requirements", "affinity", "gang", "retry"),
    *("semantics", "timeout", "expected_runtime", "preemptible"),
)
"""All that a job's terms are made of."""


class TermsAndTask(NamedTuple):
    """What jobs that ask for the same have in common."""

    terms: Terms
    task: bytes


def spec_of(
    job: JobSpec,
    created_at: Instant,
    dependencies: tuple[Dependency, ...],
    where: str = "",
    alike: TermsAndTask | None = None,
) -> Spec:
    """What was asked, as the core keeps it. `where` is the job's place in a batch."""
    concurrency = job.concurrency
    labels = job.labels
    terms, task = alike or terms_and_task_of(job, where)
    return Spec(
        terms=terms,
        task=task,
        created_at=created_at,
        payload=_EMPTY_PAYLOAD if job.payload is EMPTY_PAYLOAD else _payload(job, where),
        dependencies=dependencies,
        run_at=None if job.run_at is None else _instant(job.run_at, where, "run_at"),
        expires_at=None
        if job.expires_at is None
        else _instant(job.expires_at, where, "expires_at"),
        concurrency=Concurrency(concurrency.key, concurrency.limit) if concurrency else None,
        labels=tuple(sorted(labels.items())) if labels else (),
        group=group_of(job),
        finish_by=finish_by_of(job.finish_by, created_at, where + "finish_by"),
    )


def terms_and_task_of(job: JobSpec, where: str = "") -> TermsAndTask:
    """What it may have in common with others, and what it runs."""
    return TermsAndTask(terms_of(job), _task(job, where))


def terms_of(job: JobSpec) -> Terms:
    """What it may have in common with others."""
    return Terms(
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        priority=job.priority,
        needs=needs_of(job),
        retry=_retry(job.retry),
        semantics=Semantics(job.semantics),
        timeout_ms=_ms(job.timeout),
        expected_runtime_ms=_ms(job.expected_runtime),
        preemptible=job.preemptible,
    )


def _implied(job: JobSpec) -> tuple[str, ...]:
    if job.task is None:
        return (function_capability(job.name),)
    return implied_capabilities(job.task)


def _ms(duration: Duration | None) -> Millis | None:
    return None if duration is None else duration.ms


def function_capability(name: str) -> str:
    """What a worker needs to have to run this function."""
    return FUNCTION_CAPABILITY + name


def needs_of(job: JobSpec) -> Needs:
    """What it asks of its worker, and where that is to be."""
    needs = _needs(job.requirements, _implied(job))
    return needs if job.affinity is None and job.gang is None else with_placement(needs, job)


def _needs(asked: Requirements, implied: tuple[str, ...]) -> Needs:
    if asked is PLAIN_REQUIREMENTS or asked == PLAIN_REQUIREMENTS:
        return _plain_needs(implied) if implied else _PLAIN_NEEDS
    amounts = (asked.cpu, asked.memory, asked.storage, asked.gpu)
    capabilities = tuple(sorted({*asked.capabilities, *implied}))
    return Needs(_resources(amounts, asked.custom), capabilities)


@functools.lru_cache(maxsize=FUNCTIONS_REMEMBERED_MAX)
def _plain_needs(capabilities: tuple[str, ...]) -> Needs:
    """The same object for the many calls of one function."""
    return Needs(_PLAIN_NEEDS.resources, capabilities)


def resources_of(given: ResourcesSpec) -> Resources:
    """What a worker has."""
    return _resources((given.cpu, given.memory, given.storage, given.gpu), given.custom)


def _resources(
    amounts: tuple[float, ByteSize, ByteSize, float], custom: Mapping[str, float]
) -> Resources:
    cpu, memory, storage, gpu = amounts
    return Resources(
        cpu_milli=milli(cpu),
        memory=memory.bytes,
        storage=storage.bytes,
        gpu_milli=milli(gpu),
        custom=tuple((name, milli(amount)) for name, amount in sorted(custom.items())),
    )


def _retry(asked: RetrySpec) -> RetryPolicy:
    if asked is PLAIN_RETRY or asked == PLAIN_RETRY:
        return _PLAIN_POLICY
    return RetryPolicy(
        max_attempts=asked.max_attempts,
        backoff=Backoff(asked.backoff),
        delay_ms=asked.delay.ms,
        factor=asked.factor,
        max_delay_ms=asked.longest_delay.ms,
        jitter=asked.jitter,
        memory_factor=asked.memory_factor,
        memory_max=None if asked.memory_max is None else asked.memory_max.bytes,
    )


_PLAIN_NEEDS = Needs(Resources(cpu_milli=1000))
_PLAIN_POLICY = RetryPolicy()


def _task(job: JobSpec, where: str) -> bytes:
    if job.task is None:
        return _NULL
    task = encode(job.task)
    match job.task:
        case PythonCall(args=args, kwargs=kwargs):
            check_depth(where + "task", task, [args, kwargs])
        case HttpCall(body=body):
            check_depth(where + "task.body", task, body)
        case _:
            pass  # nothing in the others nests
    if len(task) > TASK_BYTES_MAX:
        raise invalid(where + "task", f"larger than {TASK_BYTES_MAX} bytes as JSON")
    return task


def _payload(job: JobSpec, where: str) -> bytes:
    payload = bytes(job.payload)
    if payload == _EMPTY_PAYLOAD:
        return _EMPTY_PAYLOAD
    if job.task is None and not payload.lstrip().startswith((b"{", b"[", _NULL)):
        message = (
            "without a task the job runs a function: the payload is a list of its arguments, an "
            'object with its named ones, or {"args": […], "kwargs": {…}}'
        )
        raise invalid(where + "payload", message)
    return free_json(payload, where + "payload", PAYLOAD_BYTES_MAX)


def free_json(raw: bytes, field: str, limit: int) -> bytes:
    """A value that is carried as it is, once it is known to be one."""
    if len(raw) > limit:
        message = f"larger than {limit} bytes: keep it elsewhere and name it here"
        raise invalid(field, message)
    read_json(field, raw)
    return raw


def _instant(moment: datetime | None, where: str, name: str) -> Instant | None:
    if moment is None:
        return None
    instant = to_instant(moment)
    if not 0 <= instant <= INSTANT_MAX:
        raise invalid(where + name, "between the years 1970 and 2200")
    return instant


class JobBatch:
    """Jobs submitted together: their ids, and the names their sender knows them by."""

    def __init__(
        self, specs: Sequence[JobSpec], ids: IdMint, now: Instant, trace: str = ""
    ) -> None:
        self._now = now
        self._trace = trace
        self._specs = specs
        self._last_terms: tuple[object, TermsAndTask] | None = None
        self.job_ids = [JobId(one) for one in ids.mint_many(now, len(specs))]
        self._refs: dict[str, JobId] = {}
        for number, spec in enumerate(specs):
            if not (ref := _ref_of(spec)):
                continue
            if ref in self._refs:
                raise invalid(f"jobs[{number}].ref", f"`{ref}` names another job of this batch too")
            self._refs[ref] = self.job_ids[number]
        self.outside_dependencies: dict[JobId, str] = {}
        """Dependencies on earlier jobs, and the field that named each first."""

    def new_jobs(self) -> tuple[NewJob, ...]:
        """All of them, ready to submit; fills `outside`."""
        jobs: list[NewJob] = []
        last = None
        for number, (job_id, spec) in enumerate(zip(self.job_ids, self._specs, strict=True)):
            # Neighbours that were written alike are one object (alike.py).
            if spec is last:
                jobs.append(replace(jobs[-1], id=job_id))
            else:
                jobs.append(NewJob(id=job_id, spec=self._spec_at(number), ref=_ref_of(spec)))
                last = spec
        return tuple(jobs)

    def _spec_at(self, number: int) -> Spec:
        spec = self._specs[number]
        single = len(self._specs) == 1 and not isinstance(spec, BatchJobSpec)
        # What it depends on is looked for later, and may be refused then.
        where = f"jobs[{number}]." if spec.dependencies and not single else ""
        try:
            return self._spec_of(spec, where)
        except ProblemError:
            if single or where:
                raise
            # Places are spelled out only now: most jobs are not refused.
            return self._spec_of(spec, f"jobs[{number}].")

    def _spec_of(self, spec: JobSpec, where: str) -> Spec:
        needed = self._dependencies(spec, where) if spec.dependencies else ()
        core = spec_of(spec, self._now, needed, where, self._terms_and_task_of(spec, where))
        return replace(core, trace=self._trace) if self._trace else core

    def _terms_and_task_of(self, spec: JobSpec, where: str) -> TermsAndTask:
        """Jobs of a batch are mostly alike: one that asks for the same as the last shares its."""
        asked = _terms_key(spec)
        if self._last_terms is None or self._last_terms[0] != asked:
            self._last_terms = (asked, terms_and_task_of(spec, where))
        return self._last_terms[1]

    def _dependencies(self, spec: JobSpec, where: str) -> tuple[Dependency, ...]:
        found: dict[JobId, When] = {}
        for number, one in enumerate(spec.dependencies):
            field = f"{where}dependencies[{number}]"
            text, when = parse_dependency(one)
            if text.startswith(REF):
                job_id = self._resolve(text.removeprefix(REF), field)
            else:
                job_id = job_id_of(text, field)
                self.outside_dependencies.setdefault(job_id, field)
            add_dependency(found, job_id, when, field, text)
        return tuple(Dependency(job_id, when) for job_id, when in sorted(found.items()))

    def _resolve(self, ref: str, field: str) -> JobId:
        job_id = self._refs.get(ref)
        if job_id is None:
            raise invalid(field, f"no job of this batch has the ref `{ref}`")
        return job_id

    def with_sender_names(self, refusal: Invalid) -> ProblemError:
        """A refusal about dependencies, with the sender's names for ids it has never seen."""
        names = {job_id: self._name(n) for n, job_id in enumerate(self.job_ids)}
        if isinstance(refusal, DependencyCycle):
            path = " -> ".join(names.get(JobId(one), one) for one in refusal.path)
            detail, field = f"dependencies form a cycle: {path}", refusal.field
        else:
            detail, field = refusal.detail, refusal.field
            for job_id in (one for one in self.job_ids if one in detail):
                detail = detail.replace(job_id, names[job_id])
            if isinstance(refusal, UnknownDependency):
                field = self._field_naming(detail) or field
        problem = invalid(field, detail)
        return ProblemError(422, refusal.code, detail, errors=problem.errors)

    def _name(self, number: int) -> str:
        spec = self._specs[number]
        return _ref_of(spec) or f"jobs[{number}] ({spec.name})"

    def _field_naming(self, detail: str) -> str | None:
        return next(
            (field for job_id, field in self.outside_dependencies.items() if job_id in detail), None
        )


def _ref_of(job: JobSpec) -> str:
    """The name that its batch knows it by; empty: none."""
    return job.ref or "" if isinstance(job, BatchJobSpec) else ""


def parse_dependency(dependency: str | DependencySpec) -> tuple[str, When]:
    """Both ways of writing a dependency."""
    if isinstance(dependency, str):
        return dependency, When.SUCCEEDED
    return dependency.job_id, When(dependency.when)


def add_dependency(
    found: dict[JobId, When], job_id: JobId, when: When, field: str, text: str
) -> None:
    """Adds a dependency; the same one twice counts once. `text` is what its sender calls it."""
    if found.setdefault(job_id, when) is not when:
        raise invalid(field, f"{text} is named twice, with different `when`")


def job_id_of(text: str, field: str) -> JobId:
    """An id that may exist."""
    job_id = text.lower()
    if not UUID.match(job_id):
        message = f"there is no job {text[:100]!r}: an id is a UUID (`ref:NAME` works in batches)"
        raise invalid(field, message)
    return JobId(job_id)


def value_or_none(value: T | UnsetType | None) -> T | None:
    """What was sent; None for both null and left out."""
    return None if isinstance(value, UnsetType) else value
