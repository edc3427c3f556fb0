"""Converts records to rows and back: only this module knows which column holds what.

Every body is stored with its checksum. A reader gives the columns of the row's key with it, first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionState,
    JobId,
    JobRecord,
    JobState,
    KeyRecord,
    Life,
    Queue,
    Spec,
    When,
    Worker,
)
from rota.core.schedule_model import Calendar, Occurrence, Schedule, ScheduleState
from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger, TriggerDecision
from rota.store.batched_lookup import FoundKeys
from rota.store.checksums import key_crc, opened, row_key, sealed, sealed_from
from rota.store.errors import DamagedError, DamagedRowError
from rota.store.limits import StoreLimits
from rota.store.protocol import Edge, Outline, TokenTakenError, TooManyTokensError
from rota.store.table_changes import JobStanding
from rota.store.tokens import AuditEntry, Role, Token

Row: TypeAlias = tuple[Any, ...]
"""A state in it is the enum member itself, which is text: asking for its value would take longer
than the rest of a row."""

JOB_LIVE: tuple[str, ...] = tuple(state.value for state in JobState if state not in JOB_FINAL)
EXECUTION_LIVE: tuple[str, ...] = tuple(
    state.value for state in ExecutionState if state not in EXECUTION_FINAL
)

_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(Spec).decode
_decode_life = msgspec.msgpack.Decoder(Life).decode
_decode_execution = msgspec.msgpack.Decoder(Execution).decode
_decode_worker = msgspec.msgpack.Decoder(Worker).decode
_decode_queue = msgspec.msgpack.Decoder(Queue).decode
_decode_schedule = msgspec.msgpack.Decoder(Schedule).decode
_decode_schedule_state = msgspec.msgpack.Decoder(ScheduleState).decode
_decode_occurrence = msgspec.msgpack.Decoder(Occurrence).decode
_decode_calendar = msgspec.msgpack.Decoder(Calendar).decode
_decode_standings = msgspec.json.Decoder(list[tuple[JobId, JobStanding]]).decode


def job_row(job_id: JobId, spec: Spec, life: Life, encoded: bytes | None = None) -> Row:
    """Returns id, state, lives, queue, tenant, name, priority, created at; life and spec encoded.

    `encoded` is the spec as it is stored already, if it is, without its checksum.
    """
    terms, start = spec.terms, key_crc(job_id)
    return (
        job_id,
        life.state,
        life.lives,
        terms.queue,
        terms.tenant,
        terms.name,
        terms.priority,
        spec.created_at,
        sealed_from(start, _encode(life)),
        sealed_from(start, _encode(spec) if encoded is None else encoded),
    )


def move_row(job_id: JobId, life: Life) -> Row:
    """Returns id, state, lives, life."""
    return (job_id, life.state, life.lives, sealed(job_id, _encode(life)))


def job(row: Row) -> JobRecord:
    """Reads id, life, spec."""
    return JobRecord(row[0], spec(row[0], row[2]), life(row[0], row[1]))


def outline(row: Row) -> Outline:
    """Reads id, state, queue, tenant, name."""
    try:
        return Outline(row[0], JobState(row[1]), *row[2:])
    except ValueError:
        raise DamagedRowError("job", str(row[0])) from None


def outline_of(record: JobRecord) -> Outline:
    """Returns the outline of a job that was read whole."""
    terms = record.spec.terms
    return Outline(record.id, record.life.state, terms.queue, terms.tenant, terms.name)


def standing(state: str, lives: int, queue: str, spill_queue: int = 0) -> JobStanding:
    """Reads the columns of these names."""
    return JobStanding(JobState(state), lives, queue, spill_queue)


def standings(text: str) -> Mapping[JobId, JobStanding]:
    """Reads a JSON array of [id, [state, lives, queue, line]]."""
    try:
        return dict(_decode_standings(text))
    except msgspec.ValidationError as error:
        raise DamagedError(
            f"a state, a queue or a number of a stored job is damaged ({error}): check with"
            " `rota doctor --data DIR`, restore a backup"
        ) from error


def label_rows(job_id: JobId, spec: Spec) -> list[Row]:
    """Returns rows of key, value, job id."""
    return [(key, value, job_id) for key, value in spec.labels]


def edge_rows(job_id: JobId, spec: Spec) -> list[Row]:
    """Returns rows of parent, child, condition."""
    return [(edge.job_id, job_id, edge.when.value) for edge in spec.dependencies]


def edge(row: Row) -> Edge:
    """Reads parent, child, condition."""
    return Edge(row[0], row[1], When(row[2]))


def edges_upstream(job_id: JobId, spec: Spec) -> list[Edge]:
    """Returns what this job waits for, each once."""
    each = dict.fromkeys(spec.dependencies)
    return [Edge(needed.job_id, job_id, needed.when) for needed in each]


def edges_above(found: Iterable[Any]) -> list[Edge]:
    """Reads rows of id, spec; returns what each of these jobs waits for."""
    return [edge for row in found for edge in edges_upstream(row[0], spec(row[0], row[1]))]


def life(job_id: str, data: bytes) -> Life:
    return _decode_life(opened("job", job_id, data))


def spec(job_id: str, data: bytes) -> Spec:
    return _decode_spec(opened("job", job_id, data))


def specs(found: Iterable[Row]) -> tuple[list[tuple[JobId, Spec]], list[JobId]]:
    """Reads rows of id, spec; returns the ids of damaged ones too."""
    whole: list[tuple[JobId, Spec]] = []
    damaged: list[JobId] = []
    for job_id, data in found:
        try:
            whole.append((job_id, spec(job_id, data)))
        except DamagedRowError:
            damaged.append(job_id)
    return whole, damaged


def execution_row(record: Execution) -> Row:
    """Returns id, job id, worker id, state, body."""
    body = sealed(record.id, _encode(record))
    return (record.id, record.job_id, record.worker_id, record.state, body)


def execution(row: Row) -> Execution:
    """Reads id, body."""
    return _decode_execution(opened("execution", row[0], row[1]))


def worker_row(record: Worker) -> Row:
    """Returns id, body."""
    return (record.id, sealed(record.id, _encode(record)))


def worker(row: Row) -> Worker:
    """Reads id, body."""
    return _decode_worker(opened("worker", row[0], row[1]))


def queue_row(record: Queue) -> Row:
    """Returns name, body."""
    return (record.name, sealed(record.name, _encode(record)))


def queue(row: Row) -> Queue:
    """Reads name, body."""
    return _decode_queue(opened("queue", row[0], row[1]))


def key_row(record: KeyRecord) -> Row:
    """Returns key, fingerprint, receipt, at."""
    checked = row_key(record.key, record.fingerprint, record.at)
    return (record.key, record.fingerprint, sealed(checked, record.receipt), record.at)


def key(row: Row) -> KeyRecord:
    """Reads key, fingerprint, receipt, at."""
    name, fingerprint, receipt, at = row
    try:
        return KeyRecord(
            name,
            fingerprint,
            opened("idempotency key", row_key(name, fingerprint, at), receipt),
            at,
        )
    except DamagedRowError:
        raise DamagedRowError("idempotency key", str(name)) from None


def keys_found(found: Sequence[Row]) -> FoundKeys:
    """Reads the time of the oldest record not projected yet; key, fingerprint, receipt and at of
    each key that was found; and, on PostgreSQL, the key again if it is in the inbox.

    There is always a first row; it has no key if none of them was found.
    """
    records = {row[1]: key(row[1:5]) for row in found if row[1] is not None}
    looked = len(found[0]) > 5
    waiting = {row[5] for row in found if row[5] is not None} if looked else None
    return FoundKeys(found[0][0], records, waiting)


def schedule_row(record: Schedule) -> Row:
    """Returns id, state, body. The state in the body is only as new as the definition."""
    start = key_crc(record.id)
    state, body = _encode(record.state), _encode(record)
    return (record.id, sealed_from(start, state), sealed_from(start, body))


def schedule_state_row(schedule_id: str, state: ScheduleState) -> Row:
    """Returns id, state."""
    return (schedule_id, sealed(schedule_id, _encode(state)))


def schedule(row: Row) -> Schedule:
    """Reads id, state, body."""
    state = _decode_schedule_state(opened("schedule", row[0], row[1]))
    return msgspec.structs.replace(
        _decode_schedule(opened("schedule", row[0], row[2])), state=state
    )


def occurrence_row(record: Occurrence) -> Row:
    """Returns schedule id, nominal, decision, body."""
    body = sealed(row_key(record.schedule_id, record.nominal), _encode(record))
    return (record.schedule_id, record.nominal, record.decision.value, body)


def occurrence(row: Row) -> Occurrence:
    """Reads schedule id, nominal, body."""
    return _decode_occurrence(opened("occurrence", row_key(row[0], row[1]), row[2]))


def calendar_row(record: Calendar) -> Row:
    """Returns name, body."""
    return (record.name, sealed(record.name, _encode(record)))


def calendar(row: Row) -> Calendar:
    """Reads name, body."""
    return _decode_calendar(opened("calendar", row[0], row[1]))


_decode_trigger = msgspec.msgpack.Decoder(Trigger).decode
_decode_accepted_event = msgspec.msgpack.Decoder(AcceptedEvent).decode
_decode_trigger_decision = msgspec.msgpack.Decoder(TriggerDecision).decode
_decode_buffered_event = msgspec.msgpack.Decoder(BufferedEvent).decode


def trigger_row(record: Trigger) -> Row:
    """Returns id, body."""
    return (record.id, sealed(record.id, _encode(record)))


def trigger(row: Row) -> Trigger:
    """Reads id, body."""
    return _decode_trigger(opened("trigger", row[0], row[1]))


def accepted_event_row(record: AcceptedEvent) -> Row:
    """Returns key, at, type, tenant, body."""
    body = sealed(record.key, _encode(record))
    return (record.key, record.at, record.type, record.tenant, body)


def accepted_event(row: Row) -> AcceptedEvent:
    """Reads key, body."""
    return _decode_accepted_event(opened("event", row[0], row[1]))


def trigger_decision_row(record: TriggerDecision) -> Row:
    """Returns trigger id, id, decision, body."""
    body = sealed(row_key(record.trigger_id, record.id), _encode(record))
    return (record.trigger_id, record.id, record.decision.value, body)


def trigger_decision(row: Row) -> TriggerDecision:
    """Reads trigger id, id, body."""
    return _decode_trigger_decision(opened("trigger decision", row_key(row[0], row[1]), row[2]))


def buffered_event_row(record: BufferedEvent) -> Row:
    """Returns id, body."""
    return (record.id, sealed(record.id, _encode(record)))


def buffered_event(row: Row) -> BufferedEvent:
    """Reads id, body."""
    return _decode_buffered_event(opened("buffered event", row[0], row[1]))


TOKEN_COLUMNS = "id, name, digest, role, tenant, created_at, created_by, expires_at, revoked_at"
AUDIT_COLUMNS = "at, token_id, token_name, method, route, target, status, remote, node"


def token_row(token: Token) -> tuple[Any, ...]:
    """Returns a row in the order of TOKEN_COLUMNS."""
    return (
        token.id,
        token.name,
        token.digest,
        token.role.value,
        token.tenant,
        token.created_at,
        token.created_by,
        token.expires_at,
        token.revoked_at,
    )


def to_token(row: Row) -> Token:
    """Reads a row in the order of TOKEN_COLUMNS."""
    return Token(
        id=row[0],
        name=row[1],
        digest=row[2],
        role=Role(row[3]),
        tenant=row[4],
        created_at=row[5],
        created_by=row[6],
        expires_at=row[7],
        revoked_at=row[8],
    )


def to_tokens(rows: Iterable[Row]) -> list[Token]:
    """Reads all that this program understands; leaves out roles that only a newer one knows."""
    known = [role.value for role in Role]
    return [to_token(row) for row in rows if row[3] in known]


def audit_row(entry: AuditEntry) -> tuple[Any, ...]:
    """Returns a row in the order of AUDIT_COLUMNS."""
    return (
        entry.at,
        entry.token_id,
        entry.token_name,
        entry.method,
        entry.route,
        entry.target,
        entry.status,
        entry.remote,
        entry.node,
    )


def to_audit(row: Row) -> AuditEntry:
    """Reads the id and AUDIT_COLUMNS."""
    return AuditEntry(
        id=row[0],
        at=row[1],
        token_id=row[2],
        token_name=row[3],
        method=row[4],
        route=row[5],
        target=row[6],
        status=row[7],
        remote=row[8],
        node=row[9],
    )


def token_taken() -> TokenTakenError:
    return TokenTakenError("a token with this digest, or an id that ends alike, is there already")


def too_many_tokens(limits: StoreLimits) -> TooManyTokensError:
    return TooManyTokensError(
        f"there are {limits.tokens_max} live tokens already: revoke some first"
    )


def audit_drops_max(entries: Sequence[AuditEntry], limits: StoreLimits) -> int:
    """Returns how many of the oldest entries are looked at when these are added."""
    return max(limits.audit_drops_min, 2 * len(entries))
