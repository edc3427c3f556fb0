"""Records samples of all writes and receipts, with every field: golden/journal_N.json.

`python -m tests.store.golden_journal` adds the next file. That is needed when a field was appended
or a kind or value was added; a file that is there is never made anew.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from rota.core.outcome import AnyReceipt, AnyWrite, decode_receipt, encode_receipt
from rota.store.journal import decode_record, encode_record

GOLDEN = Path(__file__).with_name("golden")
FORMS: Mapping[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "write": (AnyWrite, lambda one: encode_record([one]), lambda body: decode_record(body)[0]),
    "receipt": (AnyReceipt, encode_receipt, decode_receipt),
}
"""What a journal is made of: all types, encoder, decoder. A receipt is the answer to a key."""


def recordings() -> list[Path]:
    """The oldest first."""
    found = GOLDEN.glob("journal_*.json")
    return sorted(found, key=lambda path: int(path.stem.rpartition("_")[2]))


def named(value: Any) -> Any:
    """A plain value with the tags and the names of all fields, in their order."""
    match value:
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            fields = {name: named(getattr(value, name)) for name in value.__struct_fields__}
            return fields if tag is None else {"": tag} | fields
        case bytes():
            return value.decode("latin-1")
        case tuple() | list():
            return [named(one) for one in value]
    return value


class Sampler:
    """Makes values of a type: one with every field set, then one for every other choice in it.

    Choices are the values of an enum and the types of a union. Each type is gone through once:
    where it comes again, it has its first value, or only the fields that are required.
    """

    def __init__(self) -> None:
        self._numbers = count(1_000)
        self._taken: set[type] = set()

    def samples(self, kind: inspect.Type) -> list[Any]:
        """At least one."""
        match kind:
            case inspect.StructType():
                if kind.cls in self._taken:
                    return [kind.cls(**self._required(kind))]
                self._taken.add(kind.cls)
                return list(self._structs(kind))
            case inspect.UnionType():
                types = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
                return [value for one in types for value in self.samples(one)]
            case inspect.EnumType():
                fresh = [] if kind.cls in self._taken else list(kind.cls)
                self._taken.add(kind.cls)
                return fresh or [next(iter(kind.cls))]
            case inspect.VarTupleType():
                return [(value,) for value in self.samples(kind.item_type)]
            case inspect.TupleType():
                return [tuple(self.samples(one)[0] for one in kind.item_types)]
        return [self._scalar(kind)]

    def _structs(self, kind: inspect.StructType) -> Iterator[Any]:
        choices = {field.name: self.samples(field.type) for field in kind.fields}
        yield kind.cls(**{name: found[0] for name, found in choices.items()})
        for name, found in choices.items():
            for other in found[1:]:
                yield kind.cls(**(self._required(kind) | {name: other}))

    def _required(self, kind: inspect.StructType) -> dict[str, Any]:
        return {
            field.name: field.type.cls(**self._required(field.type))
            if isinstance(field.type, inspect.StructType)
            else self.samples(field.type)[0]
            for field in kind.fields
            if field.required
        }

    def _scalar(self, kind: inspect.Type) -> Any:
        number = next(self._numbers)
        match kind:
            case inspect.BoolType():
                return True
            case inspect.IntType():
                return number
            case inspect.FloatType():
                return number + 0.5
            case inspect.StrType():
                return f"text {number}"
            case inspect.BytesType():
                return b"bytes %d" % number
        raise NotImplementedError(f"no sample of {kind}")


def record() -> Path:
    """Writes the next file."""
    sampler, lines = Sampler(), []
    for kind, (union, encode, _) in FORMS.items():
        for value in sampler.samples(inspect.type_info(union)):
            body = base64.b64encode(encode(value)).decode()
            lines.append(json.dumps({kind: named(value), "bytes": body}))
    path = GOLDEN / f"journal_{len(recordings()) + 1}.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return path


if __name__ == "__main__":
    record()
