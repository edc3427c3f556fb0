"""Decodes many stored jobs at once, into records that share what they have in common.

Rows are checked in chunks before they are decoded: mostly all of a chunk are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
from msgspec.structs import replace

from rota.core.entries import InternPool
from rota.core.model import Instant, JobId, JobRecord, Life, Spec, Terms
from rota.store.checksums import CRC_BYTES, RESIDUE, are_whole
from rota.store.limits import DECODED_ROWS_AT_ONCE

_SHARED_MAX = 10_000
"""Values of a kind that are shared at a time: where nothing is alike, a load must not keep
everything twice."""
_SHARED_TERMS_MAX = 20_000
_ARRAY_HEADS = {0x90: 1, 0xD0: 3}
"""Bytes before the first element of a MessagePack array, of up to 15 elements and of more."""

NumberPosition: TypeAlias = tuple[int, int]
"""The first byte of a number in a stored spec, and its length in bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode_life = msgspec.msgpack.Decoder(Life).decode
_decode_terms = msgspec.msgpack.Decoder(Terms).decode
_SPEC_FIELDS = msgspec.structs.fields(Spec)
_Parts = msgspec.defstruct(
    "_Parts",
    [
        ("terms", msgspec.Raw),
        ("task", bytes),
        ("created_at", int),
        *((field.name, field.type, field.default) for field in _SPEC_FIELDS[3:]),
    ],
    array_like=True,
    gc=False,
)
"""A spec whose terms are left encoded: mostly they are those of the job before."""
_decode_parts: Callable[[bytes], Any] = msgspec.msgpack.Decoder(_Parts).decode
_number_of = int.from_bytes
_rest_of = attrgetter(*(field.name for field in _SPEC_FIELDS[5:]))


class EncodedSpec(msgspec.Struct, frozen=True, gc=False):
    """Stored spec, without its checksum, whose arrival number is cut out; jobs of one batch share
    it."""

    size: int
    """Bytes of the whole spec."""
    head: bytes
    """The bytes before the number, with the one that says its length."""
    width: int = 0
    """Bytes of the number; 0: nothing is cut out."""
    tail: bytes = b""

    def encoded(self, number: int) -> bytes:
        """Returns the whole spec, without a checksum, of the job with this arrival number."""
        if not self.width:
            return self.head
        return self.head + number.to_bytes(self.width, "big") + self.tail


class _SpecTemplate:
    """Template of the specs of one batch, which differ only in their arrival numbers.

    Only the first of them needs decoding.
    """

    __slots__ = ("_end", "_first", "_head", "_size", "_start", "_tail")

    def __init__(self, data: bytes, terms: bytes, spec: Spec) -> None:
        upper = terms + _encode(spec.task) + _encode(spec.created_at)
        number = _encode(spec.arrival_number)
        first = _ARRAY_HEADS.get(data[0] & 0xF0, 0)
        start = first + len(upper)
        fits = data[first:start] == upper and data.startswith(number, start)
        # MessagePack: a byte before a number says its length; a number up to 127 is that byte.
        self._start, self._end = start + 1, start + len(number)
        self._head, self._tail = data[: self._start], data[self._end :]
        self._size = len(data) + CRC_BYTES if fits and len(number) > 1 else -1
        self._first = spec

    @property
    def number_position(self) -> NumberPosition | None:
        """Where the arrival number is; None: unknown."""
        return (self._start, self._end - self._start) if self._size > 0 else None

    def spec_of(self, data: bytes) -> Spec | None:
        """Returns the spec, if it differs only in its arrival number; `data` has its checksum."""
        start, end = self._start, self._end
        if (
            len(data) == self._size
            and data[:start] == self._head
            and data[end:-CRC_BYTES] == self._tail
        ):
            return replace(self._first, arrival_number=_number_of(data[start:end], "big"))
        return None


class EncodedBatch(msgspec.Struct, frozen=True, gc=False):
    """Jobs whose lives and specs are stored alike but for their arrival numbers, which ascend."""

    life: bytes
    """Without its checksum."""
    spec: EncodedSpec
    ids: Sequence[JobId]
    arrival_numbers: Sequence[int]
    life_crcs: bytes
    """The checksums of all lives, one behind the other."""
    spec_crcs: bytes

    @property
    def is_whole(self) -> bool:
        """Whether each life and each spec matches its checksum."""
        starts = list(map(crc32, map(str.encode, self.ids)))
        spec, width = self.spec, self.spec.width
        numbers = (number.to_bytes(width, "big") for number in self.arrival_numbers)
        heads = map(crc32, repeat(spec.head), starts)
        specs = map(crc32, repeat(spec.tail), map(crc32, numbers, heads))
        whole = [RESIDUE] * len(starts)
        return (
            list(map(crc32, _each(self.life_crcs), map(crc32, repeat(self.life), starts))) == whole
            and list(map(crc32, _each(self.spec_crcs), specs)) == whole
        )


def _each(crcs: bytes) -> Iterator[bytes]:
    return (crcs[at : at + CRC_BYTES] for at in range(0, len(crcs), CRC_BYTES))


class BulkDecoder:
    """Decoder that lets alike jobs share their terms, lives, tasks and times.

    A million waiting jobs are mostly alike: shared, they take a fraction of the memory.
    """

    def __init__(self) -> None:
        self._terms: InternPool[Terms] = InternPool(_SHARED_TERMS_MAX)
        self._lives: dict[bytes, Life] = {}
        self._texts: InternPool[bytes] = InternPool(_SHARED_MAX)
        self._instants: InternPool[Instant] = InternPool(_SHARED_MAX)
        self._encoded: msgspec.Raw | None = None
        self._before: Spec | None = None
        """The spec that was decoded last; `_encoded` has its terms."""
        self.number_position: NumberPosition | None = None
        """Where the arrival number is in the last specs; None: they were not alike, so that those
        that follow will not be, either."""

    def jobs(self, rows: Iterable[Any], damaged: list[Any]) -> list[JobRecord]:
        """Reads rows of id, life, spec; further columns are ignored.

        Leaves out damaged rows and adds them to `damaged`.
        """
        shared_lives, template = self._lives, None
        jobs: list[JobRecord] = []
        for job_id, stored_life, stored_spec in _whole_rows(rows, damaged):
            spec = None if template is None else template.spec_of(stored_spec)
            if spec is None:
                data = stored_spec[:-CRC_BYTES]
                before, spec = self._before, self._spec(data)
                template = None
                if before is not None and _are_of_one_batch(spec, before):
                    template = _SpecTemplate(data, bytes(self._encoded or b""), spec)
            encoded = stored_life[:-CRC_BYTES]
            life = shared_lives.get(encoded)
            if life is None:
                life = self._life(encoded)
            jobs.append(JobRecord(job_id, spec, life))
        self.number_position = None if template is None else template.number_position
        return jobs

    def batch(self, batch: EncodedBatch) -> list[JobRecord] | None:
        """Returns jobs that differ only in their arrival number; None: something else was cut
        out, or one of them is damaged."""
        encoded, numbers = batch.spec, batch.arrival_numbers
        if max(numbers) >= 1 << 8 * encoded.width:
            return None  # a longer number, of which these bytes are only the end
        if len(batch.ids) != len(numbers) or not batch.is_whole:
            return None
        data = encoded.encoded(numbers[0])
        spec = self._spec(data)
        template = _SpecTemplate(data, bytes(self._encoded or b""), spec)
        position = (len(encoded.head), encoded.width)
        if template.number_position != position:
            return None
        life = self._lives.get(batch.life) or self._life(batch.life)
        both = zip(batch.ids, numbers, strict=True)
        return [JobRecord(one, replace(spec, arrival_number=number), life) for one, number in both]

    def _spec(self, data: bytes) -> Spec:
        parts, before = _decode_parts(data), self._before
        # Mostly all this is the same as with the job before, and is not looked up.
        if before is None or parts.terms != self._encoded:
            self._encoded = parts.terms
            terms = self._terms.same(_decode_terms(parts.terms))
        else:
            terms = before.terms
        task, payload, created_at = parts.task, parts.payload, parts.created_at
        if before is None or task != before.task or payload != before.payload:
            task, payload = self._texts.same(task), self._texts.same(payload)
        else:
            task, payload = before.task, before.payload
        if before is None or created_at != before.created_at:
            created_at = self._instants.same(created_at)
        else:
            created_at = before.created_at
        spec = Spec(terms, task, created_at, parts.arrival_number, payload, *_rest_of(parts))
        self._before = spec
        return spec

    def _life(self, data: bytes) -> Life:
        life, shared = _decode_life(data), self._lives
        if len(shared) >= _SHARED_MAX:
            shared.clear()
        shared[data] = life
        return life


def _whole_rows(rows: Iterable[Any], damaged: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yields id, life and spec of the rows that match their checksums."""
    left = iter(rows)
    while chunk := list(islice(left, DECODED_ROWS_AT_ONCE)):
        ids, lives, specs, *_ = zip(*chunk, strict=True)
        if are_whole(ids, lives, specs):
            yield from zip(ids, lives, specs, strict=True)
            continue
        for row, job_id, life, spec in zip(chunk, ids, lives, specs, strict=True):
            if are_whole((job_id,), (life,), (spec,)):
                yield job_id, life, spec
            else:
                damaged.append(row)


def _are_of_one_batch(spec: Spec, before: Spec) -> bool:
    """Returns whether that is likely: then those that follow are of the batch, too."""
    return spec.terms is before.terms and spec.created_at == before.created_at
