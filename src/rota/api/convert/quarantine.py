"""Conversion of jobs in quarantine from store to wire: their writes as readable JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from rota.api.limits import QUARANTINE_TEXT_CHARS
from rota.core.model import JobId
from rota.store.protocol import QuarantinedWork, ShownWrite
from rota.wire.formats import from_instant
from rota.wire.quarantine import (
    QuarantinedJobView,
    QuarantinedWriteView,
    RepairFailure,
    RepairView,
)


def quarantined_job_view(work: QuarantinedWork) -> QuarantinedJobView:
    return QuarantinedJobView(
        job_id=work.job_id,
        seq=work.seq,
        at=from_instant(work.at),
        reason=work.reason,
        count=work.count,
        writes=[_write_view(one) for one in work.writes],
    )


def _write_view(shown: ShownWrite) -> QuarantinedWriteView:
    if shown.write is None:
        return QuarantinedWriteView(shown.seq, shown.size, "", {})
    kind = type(shown.write).__name__
    return QuarantinedWriteView(shown.seq, shown.size, kind, _fields(shown.write))


def repair_view(outcome: Mapping[JobId, str]) -> RepairView:
    """Converts why each job failed, if it did."""
    return RepairView(
        [job_id for job_id, reason in outcome.items() if not reason],
        [RepairFailure(job_id, reason) for job_id, reason in outcome.items() if reason],
    )


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Returns a struct's fields by name; stored structs would be lists without names."""
    return {
        name: _readable(value)
        for name, value in msgspec.structs.asdict(struct).items()
        if value is not None
    }


def _readable(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            return _fields(value)
        case bytes():
            return _bytes_shown(value)
        case Enum():
            return value.value
        case str():
            return _cut(value)
        case Mapping():
            return {str(key): _readable(one) for key, one in value.items()}
        case Sequence():
            return [_readable(one) for one in value]
        case _:
            return value


def _bytes_shown(value: bytes) -> Any:
    """Returns JSON as it is, other text as text, and the rest as base64."""
    if len(value) <= QUARANTINE_TEXT_CHARS:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    try:
        return _cut(value.decode())
    except UnicodeDecodeError:
        return _cut(base64.b64encode(value).decode())


def _cut(text: str) -> str:
    more = len(text) - QUARANTINE_TEXT_CHARS
    return text if more <= 0 else f"{text[:QUARANTINE_TEXT_CHARS]}… ({more} more characters)"
