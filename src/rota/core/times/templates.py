"""Fills `{{scheduled_at}}` and the like into the text of a job; there is nothing to execute."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from rota.core.model import Instant, Spec
from rota.core.records.zones import Zone, local_text, utc_text

_SCHEDULE_PLACEHOLDER = re.compile(rb"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
SCHEDULE_PLACEHOLDERS = (
    "scheduled_at",
    "scheduled_local",
    "scheduled_date",
    "scheduled_unix",
    "schedule_name",
    "schedule_id",
)


def schedule_values(schedule: tuple[str, str], zone: Zone, nominal: Instant) -> Mapping[str, bytes]:
    """What the slots stand for; `schedule` is its id and name."""
    local = local_text(zone, nominal)
    schedule_id, name = schedule
    plain = {
        "scheduled_at": utc_text(nominal),
        "scheduled_local": local,
        "scheduled_date": local.partition("T")[0],
        "scheduled_unix": str(nominal // 1000),
        "schedule_name": name,
        "schedule_id": schedule_id,
    }
    # The texts are JSON, and slots can only stand within its strings: escaped, all stays JSON.
    return {key: msgspec.json.encode(value)[1:-1] for key, value in plain.items()}


def fill_schedule_template(text: bytes, known: Mapping[str, bytes]) -> bytes:
    """The text with all its slots filled."""
    if b"{{" not in text:
        return text
    return _SCHEDULE_PLACEHOLDER.sub(lambda slot: known.get(slot[1].decode(), slot[0]), text)


def unknown_schedule_placeholders(job: Spec) -> list[str]:
    """Slots that nothing would fill: spelling mistakes, or another tool's."""
    found = [
        slot.decode()
        for text in (job.task, job.payload)
        for slot in _SCHEDULE_PLACEHOLDER.findall(text)
    ]
    return [name for name in dict.fromkeys(found) if name not in SCHEDULE_PLACEHOLDERS]
