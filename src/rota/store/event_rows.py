"""Triggers and events <-> row: the only place that knows which column holds what."""

from __future__ import annotations

import msgspec

from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger, TriggerDecision
from rota.store.rows import Row

_encode_event_body = msgspec.msgpack.Encoder().encode
_decode_trigger = msgspec.msgpack.Decoder(Trigger).decode
_decode_accepted_event = msgspec.msgpack.Decoder(AcceptedEvent).decode
_decode_trigger_decision = msgspec.msgpack.Decoder(TriggerDecision).decode
_decode_buffered_event = msgspec.msgpack.Decoder(BufferedEvent).decode


def trigger_row(record: Trigger) -> Row:
    """Id, body."""
    return (record.id, _encode_event_body(record))


def trigger(row: Row) -> Trigger:
    """From the body."""
    return _decode_trigger(row[0])


def accepted_event_row(record: AcceptedEvent) -> Row:
    """Key, at, type, tenant, body."""
    return (record.key, record.at, record.type, record.tenant, _encode_event_body(record))


def accepted_event(row: Row) -> AcceptedEvent:
    """From the body."""
    return _decode_accepted_event(row[0])


def trigger_decision_row(record: TriggerDecision) -> Row:
    """Trigger id, id, verdict, body."""
    return (record.trigger_id, record.id, record.decision.value, _encode_event_body(record))


def trigger_decision(row: Row) -> TriggerDecision:
    """From the body."""
    return _decode_trigger_decision(row[0])


def buffered_event_row(record: BufferedEvent) -> Row:
    """Id, body."""
    return (record.id, _encode_event_body(record))


def buffered_event(row: Row) -> BufferedEvent:
    """From the body."""
    return _decode_buffered_event(row[0])
