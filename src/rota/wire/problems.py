"""Errors as RFC 9457 problem details."""

from __future__ import annotations

import msgspec


class FieldError(msgspec.Struct):
    """What is wrong with one field, by its path such as `retry.max_attempts`."""

    field: str
    message: str


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong, for people and programs."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []


MEDIA_TYPE = "application/problem+json"
