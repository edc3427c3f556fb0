"""JSON Merge Patch (RFC 7396) on what was submitted; the outcome is read as if it were new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rota.api.bodies import decode_json
from rota.api.problems import invalid
from rota.wire.units import encode

T = TypeVar("T")


def merge(target: Any, patch: Any) -> Any:
    """Objects merge name by name, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def drop_other_kind(job: dict[str, Any], patch: Any) -> None:
    """A task of another kind has other fields: nothing of the old one can stay."""
    task = patch.get("task") if isinstance(patch, dict) else None
    kind = (job["task"] or {}).get("kind")
    if isinstance(task, dict) and task.get("kind", kind) != kind:
        job["task"] = {}


def read_merged(
    form: dict[str, Any], patch: dict[str, Any], kind: type[T], decode: Callable[[bytes], T]
) -> T:
    """The form with the patch in it, checked as a `kind` that was sent."""
    try:
        text = encode(merge(form, patch))
    except (OverflowError, ValueError, msgspec.EncodeError) as error:
        raise invalid("", f"what it comes to cannot be written as JSON: {error}") from None
    return decode_json(decode, kind, text)
