"""Converts records to rows and back: only this module knows which column holds what."""

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

    `encoded` is the spec as it is stored already, if it is.
    """
    terms = spec.terms
    return (
        job_id,
        life.state,
        life.lives,
        terms.queue,
        terms.tenant,
        terms.name,
        terms.priority,
        spec.created_at,
        _encode(life),
        _encode(spec) if encoded is None else encoded,
    )


def move_row(job_id: JobId, life: Life) -> Row:
    """Returns id, state, lives, life."""
    return (job_id, life.state, life.lives, _encode(life))


def job(row: Row) -> JobRecord:
    """Reads id, life, spec."""
    return JobRecord(row[0], _decode_spec(row[2]), _decode_life(row[1]))


def outline(row: Row) -> Outline:
    """Reads id, state, queue, tenant, name."""
    return Outline(row[0], JobState(row[1]), *row[2:])


def outline_of(record: JobRecord) -> Outline:
    """Returns the outline of a job that was read whole."""
    terms = record.spec.terms
    return Outline(record.id, record.life.state, terms.queue, terms.tenant, terms.name)


def standing(state: str, lives: int, queue: str, spill_queue: int = 0) -> JobStanding:
    """Reads the columns of these names."""
    return JobStanding(JobState(state), lives, queue, spill_queue)


def standings(text: str) -> Mapping[JobId, JobStanding]:
    """Reads a JSON array of [id, [state, lives, queue, line]]."""
    return dict(_decode_standings(text))


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


def life(data: bytes) -> Life:
    return _decode_life(data)


def spec(data: bytes) -> Spec:
    return _decode_spec(data)


def execution_row(record: Execution) -> Row:
    """Returns id, job id, worker id, state, body."""
    return (record.id, record.job_id, record.worker_id, record.state, _encode(record))


def execution(row: Row) -> Execution:
    return _decode_execution(row[0])


def worker_row(record: Worker) -> Row:
    """Returns id, body."""
    return (record.id, _encode(record))


def worker(row: Row) -> Worker:
    return _decode_worker(row[0])


def queue_row(record: Queue) -> Row:
    """Returns name, body."""
    return (record.name, _encode(record))


def queue(row: Row) -> Queue:
    return _decode_queue(row[0])


def key_row(record: KeyRecord) -> Row:
    """Returns key, fingerprint, receipt, at."""
    return (record.key, record.fingerprint, record.receipt, record.at)


def key(row: Row) -> KeyRecord:
    """Reads key, fingerprint, receipt, at."""
    return KeyRecord(*row)


def keys_found(found: Sequence[Row]) -> FoundKeys:
    """Reads the time of the oldest record not projected yet; key, fingerprint, receipt and at of
    each key that was found; and, on PostgreSQL, the key again if it is in the inbox.

    There is always a first row; it has no key if none of them was found.
    """
    records = {row[1]: KeyRecord(*row[1:5]) for row in found if row[1] is not None}
    looked = len(found[0]) > 5
    waiting = {row[5] for row in found if row[5] is not None} if looked else None
    return FoundKeys(found[0][0], records, waiting)


def schedule_row(record: Schedule) -> Row:
    """Returns id, state, body. The state in the body is only as new as the definition."""
    return (record.id, _encode(record.state), _encode(record))


def schedule_state_row(schedule_id: str, state: ScheduleState) -> Row:
    """Returns id, state."""
    return (schedule_id, _encode(state))


def schedule(row: Row) -> Schedule:
    """Reads state, body."""
    return msgspec.structs.replace(_decode_schedule(row[1]), state=_decode_schedule_state(row[0]))


def occurrence_row(record: Occurrence) -> Row:
    """Returns schedule id, nominal, decision, body."""
    return (record.schedule_id, record.nominal, record.decision.value, _encode(record))


def occurrence(row: Row) -> Occurrence:
    return _decode_occurrence(row[0])


def calendar_row(record: Calendar) -> Row:
    """Returns name, body."""
    return (record.name, _encode(record))


def calendar(row: Row) -> Calendar:
    return _decode_calendar(row[0])


_encode_event_body = msgspec.msgpack.Encoder().encode
_decode_trigger = msgspec.msgpack.Decoder(Trigger).decode
_decode_accepted_event = msgspec.msgpack.Decoder(AcceptedEvent).decode
_decode_trigger_decision = msgspec.msgpack.Decoder(TriggerDecision).decode
_decode_buffered_event = msgspec.msgpack.Decoder(BufferedEvent).decode


def trigger_row(record: Trigger) -> Row:
    """Returns id, body."""
    return (record.id, _encode_event_body(record))


def trigger(row: Row) -> Trigger:
    return _decode_trigger(row[0])


def accepted_event_row(record: AcceptedEvent) -> Row:
    """Returns key, at, type, tenant, body."""
    return (record.key, record.at, record.type, record.tenant, _encode_event_body(record))


def accepted_event(row: Row) -> AcceptedEvent:
    return _decode_accepted_event(row[0])


def trigger_decision_row(record: TriggerDecision) -> Row:
    """Returns trigger id, id, decision, body."""
    return (record.trigger_id, record.id, record.decision.value, _encode_event_body(record))


def trigger_decision(row: Row) -> TriggerDecision:
    return _decode_trigger_decision(row[0])


def buffered_event_row(record: BufferedEvent) -> Row:
    """Returns id, body."""
    return (record.id, _encode_event_body(record))


def buffered_event(row: Row) -> BufferedEvent:
    return _decode_buffered_event(row[0])


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
