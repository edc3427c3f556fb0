"""JSON Merge Patch (RFC 7396) on what was submitted; the result is validated like a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rota.api.parsing.request import decode_json
from rota.api.problems import invalid
from rota.wire.formats import encode, parse_duration
from rota.wire.jobs import RetrySpec

T = TypeVar("T")


def merge(target: Any, patch: Any) -> Any:
    """Merges objects name by name; null removes, any other value replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def drop_conflicting_fields(job: dict[str, Any], patch: Any) -> None:
    """Removes fields of a job that cannot stay beside the patch."""
    if not isinstance(patch, dict):
        return
    task, retry = patch.get("task"), patch.get("retry")
    kind = (job["task"] or {}).get("kind")
    if isinstance(task, dict) and task.get("kind", kind) != kind:
        job["task"] = {}  # a task of another kind has other fields
    had = job["retry"]
    if (
        isinstance(retry, dict)
        and "delay" in retry
        and had["max_delay"] == _default_max_delay(had["delay"])
    ):
        had.pop("max_delay")  # a default, and the new delay may be longer


def _default_max_delay(delay: float) -> float:
    return RetrySpec(delay=parse_duration(delay)).longest_delay.seconds


def read_merged(
    form: dict[str, Any], patch: dict[str, Any], kind: type[T], decode: Callable[[bytes], T]
) -> T:
    """Merges a patch into a form and decodes the result as `kind`."""
    try:
        text = encode(merge(form, patch))
    except (OverflowError, ValueError, msgspec.EncodeError) as error:
        raise invalid("", f"the patched value cannot be written as JSON: {error}") from None
    return decode_json(decode, kind, text)
