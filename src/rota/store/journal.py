"""Encodes and decodes journal records, in an encoding that says its version.

The first byte is the version. Fields may be appended to a record's structs without a new version:
they have defaults, and readers skip what they do not know. Anything else needs a new version, and
the decoder of every older one stays here. A new kind of write is understood by newer programs only:
older ones follow no further, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rota.core.outcome import AnyWrite
from rota.store.protocol import NewerRecordError, StoreError

VERSION = 1

_encoder = msgspec.msgpack.Encoder()
_decoder_v1: msgspec.msgpack.Decoder[list[AnyWrite]] = msgspec.msgpack.Decoder(list[AnyWrite])

_DECODERS: Mapping[int, Callable[[memoryview], list[AnyWrite]]] = {1: _decoder_v1.decode}


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
