"""Conversion of jobs between wire and core: submissions to specs, records to answers, deadlines."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from msgspec.structs import replace

from rota.api.convert.groups import (
    add_group,
    affinity_view,
    group_of,
    submitted_group,
    with_placement,
)
from rota.api.ids import IdMint
from rota.api.limits import FUNCTIONS_REMEMBERED_MAX, INSTANT_MAX
from rota.api.parsing.request import check_depth, read_json
from rota.api.problems import invalid
from rota.core.commands import NewJob
from rota.core.errors import DependencyCycle, Invalid, UnknownDependency
from rota.core.info_model import DeadlineInfo
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Backoff,
    Concurrency,
    Dependency,
    Execution,
    Instant,
    JobId,
    JobRecord,
    Millis,
    Needs,
    Resources,
    RetryPolicy,
    Semantics,
    Spec,
    Terms,
    When,
)
from rota.engine.ports import Brain
from rota.store.files.artifacts import Output
from rota.wire import formats
from rota.wire.formats import (
    ByteSize,
    Duration,
    encode,
    from_instant,
    from_instant_or_none,
    milli,
    number,
    to_instant,
)
from rota.wire.jobs import (
    EMPTY_PAYLOAD,
    FUNCTION_CAPABILITY,
    PLAIN_REQUIREMENTS,
    PLAIN_RETRY,
    BatchJobSpec,
    ConcurrencyView,
    DeadlineView,
    DependencySpec,
    DependencyView,
    HttpCall,
    JobSpec,
    JobView,
    PythonCall,
    Requirements,
    RequirementsView,
    RetrySpec,
    RetryView,
    Task,
    implied_capabilities,
)
from rota.wire.limits import PAYLOAD_BYTES_MAX, TASK_BYTES_MAX
from rota.wire.problems import ProblemError
from rota.wire.workers import ArtifactView, ExecutionView, ResourcesSpec

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
REF = "ref:"
_EMPTY_PAYLOAD = b"{}"
_NULL = b"null"
_terms_key = attrgetter(
    *("name", "queue", "tenant", "priority", "task", "requirements", "affinity", "gang", "retry"),
    *("semantics", "timeout", "expected_runtime", "preemptible"),
)
"""All fields that a job's terms are made of."""


class TermsAndTask(NamedTuple):
    """Terms and task that jobs with the same request have in common."""

    terms: Terms
    task: bytes


def spec_of(
    job: JobSpec,
    created_at: Instant,
    dependencies: tuple[Dependency, ...],
    where: str = "",
    shared: TermsAndTask | None = None,
) -> Spec:
    """Converts a submitted job. `where` is its path in a batch."""
    concurrency = job.concurrency
    labels = job.labels
    terms, task = shared or terms_and_task_of(job, where)
    return Spec(
        terms=terms,
        task=task,
        created_at=created_at,
        payload=_EMPTY_PAYLOAD if job.payload is EMPTY_PAYLOAD else _payload(job, where),
        dependencies=dependencies,
        run_at=None if job.run_at is None else instant_of(job.run_at, where + "run_at"),
        expires_at=None
        if job.expires_at is None
        else instant_of(job.expires_at, where + "expires_at"),
        concurrency=Concurrency(concurrency.key, concurrency.limit) if concurrency else None,
        labels=tuple(sorted(labels.items())) if labels else (),
        group=group_of(job),
        finish_by=finish_by_of(job.finish_by, created_at, where + "finish_by"),
    )


def terms_and_task_of(job: JobSpec, where: str = "") -> TermsAndTask:
    """Converts what a job may have in common with others, and its task."""
    return TermsAndTask(terms_of(job), _task(job, where))


def terms_of(job: JobSpec) -> Terms:
    """Converts what a job may have in common with others."""
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
    """Returns the capability that a worker needs to run this function."""
    return FUNCTION_CAPABILITY + name


def needs_of(job: JobSpec) -> Needs:
    """Converts what a job asks of its worker, and where that is to be."""
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
    """Returns the same object for all jobs of one function, so that they share memory."""
    return Needs(_PLAIN_NEEDS.resources, capabilities)


def resources_of(given: ResourcesSpec) -> Resources:
    """Converts a worker's capacity."""
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
            pass  # no field of the others can nest
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
    """Checks a JSON value that is passed on unchanged."""
    if len(raw) > limit:
        message = f"larger than {limit} bytes: store it elsewhere and send a link"
        raise invalid(field, message)
    read_json(field, raw)
    return raw


def instant_of(moment: datetime, field: str) -> Instant:
    """Converts a time; refuses one that must be a mistake."""
    instant = to_instant(moment)
    if not 0 <= instant <= INSTANT_MAX:
        raise invalid(field, "between the years 1970 and 2200")
    return instant


class JobBatch:
    """Jobs submitted together, with their new ids and the refs that their sender gave them."""

    def __init__(
        self, specs: Sequence[JobSpec], ids: IdMint, now: Instant, trace: str = ""
    ) -> None:
        self._now = now
        self._trace = trace
        self._specs = specs
        self._last_terms: tuple[object, TermsAndTask] | None = None
        self.job_ids = [JobId(one) for one in ids.mint_many(now, len(specs))]
        self._refs: dict[str, JobId] = {}
        for position, spec in enumerate(specs):
            if not (ref := _ref_of(spec)):
                continue
            if ref in self._refs:
                raise invalid(
                    f"jobs[{position}].ref", f"`{ref}` is the ref of another job of this batch too"
                )
            self._refs[ref] = self.job_ids[position]
        self.outside_dependencies: dict[JobId, str] = {}
        """Dependencies on earlier jobs, and the field that named each first."""

    def new_jobs(self) -> tuple[NewJob, ...]:
        """Converts all jobs; fills `outside_dependencies`."""
        jobs: list[NewJob] = []
        last = None
        for position, (job_id, spec) in enumerate(zip(self.job_ids, self._specs, strict=True)):
            # Neighbours with the same bytes are one object (`read_batch`).
            if spec is last:
                jobs.append(replace(jobs[-1], id=job_id))
            else:
                jobs.append(NewJob(id=job_id, spec=self._spec_at(position), ref=_ref_of(spec)))
                last = spec
        return tuple(jobs)

    def _spec_at(self, position: int) -> Spec:
        spec = self._specs[position]
        single = len(self._specs) == 1 and not isinstance(spec, BatchJobSpec)
        # Dependencies are looked up later, and a refusal then needs the path.
        where = f"jobs[{position}]." if spec.dependencies and not single else ""
        try:
            return self._spec_of(spec, where)
        except ProblemError:
            if single or where:
                raise
            # Only now with paths in the messages: most jobs are not refused.
            return self._spec_of(spec, f"jobs[{position}].")

    def _spec_of(self, spec: JobSpec, where: str) -> Spec:
        needed = self._dependencies(spec, where) if spec.dependencies else ()
        core = spec_of(spec, self._now, needed, where, self._terms_and_task_of(spec, where))
        return replace(core, trace=self._trace) if self._trace else core

    def _terms_and_task_of(self, spec: JobSpec, where: str) -> TermsAndTask:
        """Returns terms and task, shared with the job before if both ask for the same."""
        asked = _terms_key(spec)
        if self._last_terms is None or self._last_terms[0] != asked:
            self._last_terms = (asked, terms_and_task_of(spec, where))
        return self._last_terms[1]

    def _dependencies(self, spec: JobSpec, where: str) -> tuple[Dependency, ...]:
        found: dict[JobId, When] = {}
        for position, one in enumerate(spec.dependencies):
            field = f"{where}dependencies[{position}]"
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
        """Converts a refusal about dependencies, with the sender's refs in place of new ids."""
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

    def _name(self, position: int) -> str:
        spec = self._specs[position]
        return _ref_of(spec) or f"jobs[{position}] ({spec.name})"

    def _field_naming(self, detail: str) -> str | None:
        return next(
            (field for job_id, field in self.outside_dependencies.items() if job_id in detail), None
        )


def _ref_of(job: JobSpec) -> str:
    """Returns the job's ref in its batch; empty: none."""
    return job.ref or "" if isinstance(job, BatchJobSpec) else ""


def parse_dependency(dependency: str | DependencySpec) -> tuple[str, When]:
    """Parses both ways of writing a dependency."""
    if isinstance(dependency, str):
        return dependency, When.SUCCEEDED
    return dependency.job_id, When(dependency.when)


def add_dependency(
    found: dict[JobId, When], job_id: JobId, when: When, field: str, text: str
) -> None:
    """Adds a dependency; the same one twice counts once. `text` is what its sender wrote."""
    if found.setdefault(job_id, when) is not when:
        raise invalid(field, f"{text} is named twice, with different `when`")


def job_id_of(text: str, field: str) -> JobId:
    """Returns an id that may exist; refuses other texts."""
    job_id = text.lower()
    if not UUID.match(job_id):
        message = f"there is no job {text[:100]!r}: an id is a UUID (`ref:NAME` works in batches)"
        raise invalid(field, message)
    return JobId(job_id)


_read_task = msgspec.json.Decoder(Task).decode
EMPTY_OBJECT = msgspec.Raw(b"{}")


def job_view(job: JobRecord) -> JobView:
    spec, life, terms = job.spec, job.life, job.spec.terms
    view = JobView(
        job_id=job.id,
        name=terms.name,
        queue=terms.queue,
        tenant=terms.tenant,
        priority=terms.priority,
        status=life.state.value,
        reason=life.reason or None,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else EMPTY_OBJECT,
        requirements=requirements_view(terms.needs),
        dependencies=[DependencyView(one.job_id, one.when.value) for one in spec.dependencies],
        run_at=from_instant_or_none(spec.run_at),
        expires_at=from_instant_or_none(spec.expires_at),
        timeout=seconds_or_none(terms.timeout_ms),
        expected_runtime=seconds_or_none(terms.expected_runtime_ms),
        retry=_retry_view(terms.retry),
        semantics=terms.semantics.value,
        concurrency=_concurrency_view(spec),
        preemptible=terms.preemptible,
        labels=dict(spec.labels),
        attempt=life.attempt,
        fence=life.fence,
        losses=life.losses,
        execution_id=life.execution_id,
        worker_id=life.worker_id,
        created_at=from_instant(spec.created_at),
        scheduled_at=from_instant(scheduled_at(spec.run_at, spec.created_at)),
        started_at=from_instant_or_none(life.started_at),
        finished_at=from_instant_or_none(life.finished_at),
        progress=life.progress,
        message=life.message or None,
        result=_json(life.result),
        error=_json(life.error),
    )
    return _with_origin(view, job)


def _with_origin(view: JobView, job: JobRecord) -> JobView:
    """Adds what created the job (schedule, trigger), its affinity, deadline and group."""
    spec = job.spec
    view.affinity = affinity_view(spec.terms.needs.affinity)
    if spec.origin is not None:
        view.schedule_id = spec.origin.schedule_id
    if spec.trigger_origin is not None:
        view.trigger_id = spec.trigger_origin.trigger_id
    if spec.finish_by is not None:
        view.finish_by, view.deadline = from_instant_or_none(spec.finish_by), ended_deadline(job)
    return view if spec.group is None else add_group(view, job)


def _concurrency_view(spec: Spec) -> ConcurrencyView | None:
    key = spec.concurrency
    return None if key is None else ConcurrencyView(key.key, key.limit)


def requirements_view(needs: Needs) -> RequirementsView:
    """Converts needs to plain numbers."""
    asked = needs.resources
    return RequirementsView(
        cpu=number(asked.cpu_milli),
        memory=asked.memory,
        storage=asked.storage,
        gpu=number(asked.gpu_milli),
        custom={name: number(amount) for name, amount in asked.custom},
        capabilities=list(needs.capabilities),
    )


def _retry_view(policy: RetryPolicy) -> RetryView:
    return RetryView(
        max_attempts=policy.max_attempts,
        backoff=policy.backoff.value,
        delay=number(policy.delay_ms),
        factor=policy.factor,
        max_delay=number(policy.max_delay_ms),
        jitter=policy.jitter,
        memory_factor=policy.memory_factor,
        memory_max=policy.memory_max,
    )


def artifact_view(output: Output) -> ArtifactView:
    return ArtifactView(output.name, output.size, output.sha256)


def execution_view(execution: Execution, artifacts: Sequence[Output] = ()) -> ExecutionView:
    """Converts an execution with its output files."""
    return ExecutionView(
        execution_id=execution.id,
        job_id=execution.job_id,
        worker_id=execution.worker_id,
        attempt=execution.attempt,
        fence=execution.fence,
        status=execution.state.value,
        reason=execution.reason or None,
        claimed_at=from_instant(execution.claimed_at),
        start_time=from_instant_or_none(execution.started_at),
        end_time=from_instant_or_none(execution.ended_at),
        result=_json(execution.result),
        error=_json(execution.error),
        exit_code=execution.exit_code,
        usage=_json(execution.usage),
        artifacts=[structs.asdict(artifact_view(one)) for one in artifacts],
        memory=execution.memory,
        behind=execution.behind,
    )


def scheduled_at(run_at: Instant | None, created_at: Instant) -> Instant:
    return created_at if run_at is None else run_at


def seconds_or_none(ms: int | None) -> int | float | None:
    return None if ms is None else number(ms)


def _json(data: bytes | None) -> Any:
    return None if data is None else msgspec.Raw(data)


def submitted_form(job: JobRecord) -> dict[str, Any]:
    """Returns a job as it would be submitted again: what a patch is merged into."""
    spec, terms, limit = job.spec, job.spec.terms, job.spec.concurrency
    return {
        "name": terms.name,
        "task": msgspec.json.decode(spec.task),
        "queue": terms.queue,
        "tenant": terms.tenant,
        "priority": terms.priority,
        "requirements": _submitted_requirements(job.spec),
        "dependencies": [
            {"job_id": one.job_id, "when": one.when.value} for one in spec.dependencies
        ],
        "run_at": from_instant_or_none(spec.run_at),
        "expires_at": from_instant_or_none(spec.expires_at),
        "timeout": seconds_or_none(terms.timeout_ms),
        "expected_runtime": seconds_or_none(terms.expected_runtime_ms),
        "retry": msgspec.to_builtins(_retry_view(terms.retry)),
        "semantics": terms.semantics.value,
        "concurrency": {"key": limit.key, "limit": limit.limit} if limit else None,
        "preemptible": terms.preemptible,
        "labels": dict(spec.labels),
        "affinity": msgspec.to_builtins(affinity_view(terms.needs.affinity)),
        "payload": msgspec.Raw(spec.payload) if spec.payload else EMPTY_OBJECT,
        "finish_by": from_instant_or_none(spec.finish_by),
        **submitted_group(job),
    }


def _submitted_requirements(spec: Spec) -> Any:
    """Returns requirements without what the function's name or the kind of task implies.

    A patch may change those.
    """
    view = requirements_view(spec.terms.needs)
    if spec.task == b"null":
        implied: tuple[str, ...] = (function_capability(spec.terms.name),)
    else:
        implied = implied_capabilities(_read_task(spec.task))
    view.capabilities = [one for one in view.capabilities if one not in implied]
    return msgspec.to_builtins(view)


def finish_by_of(given: formats.Deadline | None, created_at: Instant, field: str) -> Instant | None:
    """Returns the deadline as an instant; a duration counts from the submission."""
    if given is None:
        return None
    if given.within is not None:
        return created_at + given.within.ms
    assert given.at is not None
    return instant_of(given.at, field)


def check_relative(job: JobSpec, where: str) -> None:
    """Refuses a fixed deadline in a job template: each job needs its own."""
    if job.finish_by is not None and job.finish_by.at is not None:
        raise invalid(where + "finish_by", "how long after each job is made, such as 2h")


def deadline_view(deadline: DeadlineInfo | None) -> DeadlineView | None:
    if deadline is None:
        return None
    end = deadline.expected_end
    return DeadlineView(
        from_instant(deadline.finish_by),
        deadline.status,  # type: ignore[arg-type]  # the core has the same words
        number(deadline.slack_ms),
        from_instant_or_none(end),
    )


def add_deadline(view: JobView, job: JobRecord, brain: Brain) -> None:
    """Adds how the job stands to its deadline, as far as this server knows."""
    if job.spec.finish_by is None or job.life.state in JOB_FINAL:
        return
    if brain.ready:
        view.deadline = deadline_view(brain.deadline(job))
    else:
        view.deadline = deadline_view(_estimated_deadline(job, brain.clock.now()))


def ended_deadline(job: JobRecord) -> DeadlineView | None:
    """Returns what became of the deadline of a finished job."""
    spec, life = job.spec, job.life
    if spec.finish_by is None or life.finished_at is None or life.state not in JOB_FINAL:
        return None
    slack = spec.finish_by - life.finished_at
    status = life.deadline or "missed"
    return deadline_view(DeadlineInfo(spec.finish_by, status, slack, life.finished_at))


def _estimated_deadline(job: JobRecord, now: Instant) -> DeadlineInfo:
    """Estimates from the job alone, on a server that does not lead."""
    spec, life = job.spec, job.life
    assert spec.finish_by is not None
    runtime_ms = spec.terms.expected_runtime_ms or 0
    end = max(now, (life.started_at or now) + runtime_ms)
    slack = spec.finish_by - end
    status = "late" if slack < 0 else life.deadline or "on_time"
    return DeadlineInfo(spec.finish_by, status, slack)
