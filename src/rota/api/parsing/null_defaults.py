"""Null defaults: null for a field with a default means the default, as many clients send it.

A body is first decoded as it is. Only if that fails are such nulls removed, by the body's type, and
it is decoded again. Free JSON (a payload, an event's data) is passed through byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from rota.api.parsing.error_text import alternatives

Document = dict[str, Any]
NULL = b"null"
_FREE = (inspect.NoneType, inspect.AnyType, inspect.RawType)
"""Types that accept null as a value."""
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_BESIDE = ("default", "description", "examples")
"""Keys of a schema that do not restrict values."""
_REF_START = "#/components/schemas/"


class NullFields:
    """Fields of a type where null means the default."""

    def __init__(self) -> None:
        self.fields: dict[str, tuple[bool, NullFields]] = {}
        """By name: whether null means the default, and the fields inside."""
        self.others: NullFields | None = None
        """Fields in the values of an object with any names."""
        self.items: NullFields | None = None

    def without_nulls(self, raw: bytes) -> bytes:
        """Returns the value without nulls that mean a default."""
        first = raw.lstrip()[:1]
        if NULL not in raw:
            return raw
        if first == b"{" and (self.fields or self.others):
            return _encode(dict(self._kept(_object(raw))))
        if first == b"[" and self.items:
            return _encode([msgspec.Raw(self.items.without_nulls(bytes(x))) for x in _array(raw)])
        return raw

    def _kept(self, given: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, msgspec.Raw]]:
        for name, value in given.items():
            optional, inner = self.fields.get(name, (False, self.others))
            text = bytes(value)
            if optional and text == NULL:
                continue
            yield name, value if inner is None else msgspec.Raw(inner.without_nulls(text))


@cache
def null_fields_of(kind: Any) -> NullFields:
    return _null_fields([inspect.type_info(kind)])


def without_nulls(body: bytes, kind: Any) -> bytes | None:
    """Returns the body without nulls that mean a default; None if there are none, or it is no
    JSON."""
    if NULL not in body:
        return None
    try:
        pruned = null_fields_of(kind).without_nulls(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if pruned == body else pruned


def _null_fields(kinds: Iterable[inspect.Type]) -> NullFields:
    made = NullFields()
    fields: dict[str, list[inspect.Field]] = {}
    values: list[inspect.Type] = []
    items: list[inspect.Type] = []
    for one in [option for kind in kinds for option in alternatives(kind)]:
        if isinstance(one, inspect.StructType):
            for field in one.fields:
                fields.setdefault(field.encode_name, []).append(field)
        elif isinstance(one, inspect.DictType):
            values.append(one.value_type)
        elif isinstance(one, inspect.ListType | inspect.VarTupleType | inspect.SetType):
            items.append(one.item_type)
    for name, alike in fields.items():
        inner = _null_fields([field.type for field in alike])
        made.fields[name] = (all(map(has_default, alike)), inner)
    made.others = _null_fields(values) if values else None
    made.items = _null_fields(items) if items else None
    return made


def has_default(field: inspect.Field) -> bool:
    """Whether null for this field can only mean its default."""
    takes_null = any(isinstance(one, _FREE) for one in alternatives(field.type))
    return not field.required and not takes_null


def document_nulls(components: Document, bodies: Iterable[str], answers: Iterable[str]) -> None:
    """Adds null to the schemas of types that are sent and never answered."""
    answered = _reached(components, answers)
    for name in _reached(components, bodies):
        schema = components[name]
        if name in answered or schema.get("type") != "object":
            continue
        required = schema.get("required", [])
        for field, one in schema.get("properties", {}).items():
            if field not in required and not _is_nullable(one):
                schema["properties"][field] = _nullable(one)


def _reached(components: Document, names: Iterable[str]) -> dict[str, None]:
    """Returns these schemas and all that they refer to."""
    found: dict[str, None] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in found and name in components:
            found[name] = None
            left += _references(components[name])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.removeprefix(_REF_START)
            elif key == "mapping":
                yield from (one.removeprefix(_REF_START) for one in value.values())
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for one in schema:
            yield from _references(one)


def _is_nullable(schema: Document) -> bool:
    if all(key in _BESIDE for key in schema):
        return True  # takes any value
    return {"type": "null"} in schema.get("anyOf", []) or schema.get("type") == "null"


def _nullable(schema: Document) -> Document:
    beside = {key: value for key, value in schema.items() if key in _BESIDE}
    plain = {key: value for key, value in schema.items() if key not in _BESIDE}
    options = plain["anyOf"] if set(plain) == {"anyOf"} else [plain]
    return {**beside, "anyOf": [*options, {"type": "null"}]}
