"""Encodes and decodes journal records, in an encoding that says its version, and chains them.

The first byte is the version. Fields may be appended to a record's structs without a new version:
they have defaults, and readers skip what they do not know. Anything else needs a new version, and
the decoder of every older one stays here. A new kind of write is understood by newer programs only:
older ones follow no further, and say so.

The journal is a hash chain: each record's hash covers the record and the hash before it. Two
journals that have the same hash at a position have the same records up to there, so a server that
compares a position and a hash notices records that a failover lost or replaced, and damaged bytes.

Why: docs/decisions/0032-journal-is-a-hash-chain.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgspec

from rota.core.model import Instant
from rota.core.outcome import AnyWrite
from rota.store.protocol import (
    GENESIS,
    DivergedError,
    Epoch,
    Head,
    JournalRecord,
    NewerRecordError,
    Seq,
    StoreError,
)

VERSION = 1

_encoder = msgspec.msgpack.Encoder()
_decoder_v1: msgspec.msgpack.Decoder[list[AnyWrite]] = msgspec.msgpack.Decoder(list[AnyWrite])

_DECODERS: Mapping[int, Callable[[memoryview], list[AnyWrite]]] = {1: _decoder_v1.decode}
_POSITION = Struct(">qqq")
HASH_BYTES = 16


def encode_record(writes: Sequence[AnyWrite]) -> bytes:
    """Returns the body of one journal record."""
    body = bytearray((VERSION,))
    _encoder.encode_into(writes, body, 1)
    return bytes(body)


def decode_record(body: bytes) -> list[AnyWrite]:
    """Returns what was written, by whichever version of the program wrote it."""
    if not body:
        raise StoreError("a journal record is empty: the journal is damaged, restore a backup")
    decode = _DECODERS.get(body[0])
    if decode is None:
        raise NewerRecordError(
            f"a journal record has encoding version {body[0]}, this program reads up to {VERSION}:"
            " a newer server wrote it, upgrade this one"
        )
    try:
        return decode(memoryview(body)[1:])
    except msgspec.ValidationError as error:
        # Well-formed, but unknown here: a kind, a state or a shape of a later version.
        raise NewerRecordError(
            f"a journal record says what this program does not know ({error}):"
            " a newer server wrote it, upgrade this one"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"a journal record cannot be read ({error}): the journal is damaged, restore a backup"
        ) from error


def chain_hash(before: bytes, seq: int, epoch: int, at: Instant, body: bytes) -> bytes:
    """Returns the hash of a record that follows the one with the hash `before`."""
    digest = blake2b(before, digest_size=HASH_BYTES)
    digest.update(_POSITION.pack(seq, epoch, at))
    digest.update(body)
    return digest.digest()


def next_head(head: Head, epoch: Epoch, at: Instant, body: bytes) -> Head:
    """Returns the end of the journal once this record is appended after `head`."""
    seq = Seq(head.seq + 1)
    return Head(seq, chain_hash(head.hash, seq, epoch, at, body))


def hash_records(before: bytes, found: Iterable[Sequence[Any]]) -> list[tuple[int, bytes]]:
    """Returns the positions and hashes of records that were stored without one, in their order.

    Rows have seq, epoch, at, body; `before` is the hash of the record before the first.
    """
    hashes: list[tuple[int, bytes]] = []
    for seq, epoch, at, body in found:
        before = chain_hash(before, seq, epoch, at, body)
        hashes.append((seq, before))
    return hashes


class ChainReader:
    """Reads stored records in their order; verifies that each follows the one before."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def read(self, seq: int, epoch: int, at: Instant, stored: bytes, body: bytes) -> JournalRecord:
        """Returns the next record; raises DivergedError if it is not the one that follows."""
        self.verify(seq, epoch, at, stored, body)
        return JournalRecord(Seq(seq), Epoch(epoch), at, decode_record(body), stored)

    def verify(self, seq: int, epoch: int, at: Instant, stored: bytes, body: bytes) -> None:
        """Moves the head to this record; raises DivergedError if it does not follow."""
        before = self.head.hash
        if chain_hash(before, seq, epoch, at, body) != stored:
            raise DivergedError(
                f"journal record {seq} does not follow record {self.head.seq}: a failover of the"
                " database replaced records, or the journal is damaged (`rota doctor` says which)"
            )
        self.head = Head(Seq(seq), stored)


def confirm_tables(head: Head, stored: bytes | None) -> None:
    """Raises DivergedError unless the journal has the record up to which the tables are.

    `stored` is the hash at that position. A journal that came from 0.1 may begin after it.
    """
    if head.seq and stored != head.hash and (stored, head.hash) != (None, GENESIS.hash):
        raise DivergedError(
            f"the journal does not have the record {head.seq} that the tables have: the journal is"
            " damaged, or is not theirs: restore a backup"
        )


def follow_chain(after: Head, found: Sequence[Sequence[Any]], limit: int) -> list[JournalRecord]:
    """Returns the at most `limit` records after `after`, of rows that begin with `after` itself.

    Rows have seq, epoch, at, hash, body. What is too old may be gone: then they begin later.
    """
    stored = list(found)
    if after.seq and (not stored or stored[0][0] == after.seq):
        if not stored or bytes(stored[0][3]) != after.hash:
            raise DivergedError(
                f"the journal does not have the record {after.seq} that this server read: a"
                " failover of the database lost or replaced it"
            )
        stored = stored[1:]
    elif stored and stored[0][0] != after.seq + 1:
        # Older records were dropped: the chain begins anew, and the reader sees the gap.
        seq, epoch, at, newest, body = stored[0]
        first = JournalRecord(Seq(seq), Epoch(epoch), at, decode_record(body), newest)
        return [first, *_read_chain(first.head, stored[1:limit])]
    return _read_chain(after, stored[:limit])


def _read_chain(after: Head, found: Sequence[Sequence[Any]]) -> list[JournalRecord]:
    chain_reader = ChainReader(after)
    return [chain_reader.read(*row) for row in found]
