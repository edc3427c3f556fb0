"""Triggers and events <-> row: the only place that knows which column holds what."""

from __future__ import annotations

import msgspec

from rota.core.records.events import AcceptedEvent, BufferedEvent, Trigger, TriggerDecision
from rota.store.rows import Row

_encode = msgspec.msgpack.Encoder().encode
_decode_trigger = msgspec.msgpack.Decoder(Trigger).decode
_decode_told = msgspec.msgpack.Decoder(AcceptedEvent).decode
_decode_arrival = msgspec.msgpack.Decoder(TriggerDecision).decode
_decode_held = msgspec.msgpack.Decoder(BufferedEvent).decode


def trigger_row(record: Trigger) -> Row:
    """Id, body."""
    return (record.id, _encode(record))


def trigger(row: Row) -> Trigger:
    """From the body."""
    return _decode_trigger(row[0])


def told_row(record: AcceptedEvent) -> Row:
    """Key, at, type, tenant, body."""
    return (record.key, record.at, record.type, record.tenant, _encode(record))


def told(row: Row) -> AcceptedEvent:
    """From the body."""
    return _decode_told(row[0])


def arrival_row(record: TriggerDecision) -> Row:
    """Trigger id, id, verdict, body."""
    return (record.trigger_id, record.id, record.decision.value, _encode(record))


def arrival(row: Row) -> TriggerDecision:
    """From the body."""
    return _decode_arrival(row[0])


def held_row(record: BufferedEvent) -> Row:
    """Id, body."""
    return (record.id, _encode(record))


def held(row: Row) -> BufferedEvent:
    """From the body."""
    return _decode_held(row[0])
