"""Encoding of the journal: a record that was written once can be read for ever."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given

from rota.core.model import (
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    KeyRecord,
    Life,
    Needs,
    Queue,
    Quota,
    RateLimit,
    Resources,
    RetryPolicy,
    RuntimeStats,
    Spec,
    Tenant,
    Terms,
    When,
    Worker,
    WorkerId,
    WorkerState,
)
from rota.core.outcome import (
    AnyWrite,
    DropJob,
    DropWorker,
    MoveJob,
    PutExecution,
    PutJob,
    PutKey,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutTenant,
    PutWorker,
)
from rota.core.policy import EASY, Policy
from rota.store.journal import VERSION, decode_record, encode_record
from rota.store.protocol import NewerRecordError, StoreError
from tests.store.golden_journal import FORMS, named, recordings
from tests.store.naive import histories

VERSION_1 = bytes.fromhex(
    "019894a16aa56a6f622d319b9aa7696e766f696365a764656661756c74a461636d65059295cd05dccd040000"
    "009192a76c6963656e6365cd03e891a56c696e75789603ab6578706f6e656e7469616ccd03e8cb4000000000"
    "000000ce000493e0cb3fb999999999999aad61745f6c656173745f6f6e6365c0c0c2c40f7b226b696e64223a"
    "226e6f6f70227dcd03e807c4027b7d9192a56a6f622d30a866696e6973686564c0c0c09192a47465616da762"
    "696c6c696e6700dc0011a6717565756564a000000001c0c0c0c0c0c0a0c0c0c2c093a16da56a6f622d31dc00"
    "11a772756e6e696e67a001020001c0c0c0a3782d31a3772d31cb3fe0000000000000a0c0c0c2c092a2646aa5"
    "6a6f622d3092a165dc0010a3782d31a56a6f622d31a3772d310102a7636c61696d6564cd03e9c0c0c0c0c0c0"
    "c0c0a092a17799a3772d31a4686f7374a3732d3195cd0fa00000009091a56c696e7578c0a66f6e6c696e65cd"
    "03e7c092a26477a3772d3092a17197a764656661756c7400cb3ff000000000000004920acd03e8c20092a16b"
    "94a36b6579a57072696e74c40492a16e01cd03ea"
)
"""Written by the first version of the program. Never to be made anew: old journals look so."""

RECORD = (
    "A stored record has changed. If a field, a kind or a value was added: "
    "`python -m tests.store.golden_journal` records it beside the old ones."
)

TERMS = Terms(
    "invoice",
    "default",
    "acme",
    5,
    Needs(Resources(1500, 1024, 0, 0, (("licence", 1000),)), ("linux",)),
    RetryPolicy(max_attempts=3),
)
MEANT: list[AnyWrite] = [
    PutJob(
        JobId("job-1"),
        Spec(
            TERMS,
            b'{"kind":"noop"}',
            1000,
            7,
            b"{}",
            (Dependency(JobId("job-0"), When.FINISHED),),
            labels=(("team", "billing"),),
        ),
        Life(JobState.QUEUED),
    ),
    MoveJob(
        JobId("job-1"),
        Life(
            JobState.RUNNING,
            attempt=1,
            fence=2,
            execution_id=ExecutionId("x-1"),
            worker_id=WorkerId("w-1"),
            progress=0.5,
        ),
    ),
    DropJob(JobId("job-0")),
    PutExecution(
        Execution(
            ExecutionId("x-1"),
            JobId("job-1"),
            WorkerId("w-1"),
            1,
            2,
            ExecutionState.CLAIMED,
            1001,
        )
    ),
    PutWorker(
        Worker(
            WorkerId("w-1"),
            "host",
            "s-1",
            Resources(4000),
            ("linux",),
            None,
            WorkerState.ONLINE,
            999,
        )
    ),
    DropWorker(WorkerId("w-0")),
    PutQueue(Queue("default", max_workers=4, rate_limit=RateLimit(10, 1000))),
    PutKey(KeyRecord("key", "print", b"\x92\xa1n\x01", 1002)),
]


def recorded(path: Path) -> Iterator[tuple[str, Any, bytes]]:
    """Kind, meaning and bytes of each."""
    for entry in json.loads(path.read_text()):
        body = base64.b64decode(entry.pop("bytes"))
        ((kind, meant),) = entry.items()
        yield kind, meant, body


def test_a_record_of_the_first_version_is_still_read() -> None:
    assert decode_record(VERSION_1) == MEANT


def test_settings_are_read_as_they_were_written() -> None:
    writes = [
        PutPolicy(EASY),
        PutTenant(Tenant("acme", 2.0, Quota(running=3), 1.5, 1_000)),
        PutRuntime(RuntimeStats("acme", "bill", (10, 20))),
    ]
    assert decode_record(encode_record(writes)) == writes
    bare = bytes([1]) + msgspec.msgpack.encode([["po", []], ["te", ["acme"]]])
    assert decode_record(bare) == [PutPolicy(Policy()), PutTenant(Tenant("acme"))]


def test_a_record_with_fewer_fields_than_today_gets_their_defaults() -> None:
    life = ["queued", "", 1]
    body = bytes([1]) + msgspec.msgpack.encode([["m", "job-1", life], ["q", ["bulk", 3]]])
    assert decode_record(body) == [
        MoveJob(JobId("job-1"), Life(JobState.QUEUED, attempt=1)),
        PutQueue(Queue("bulk", priority=3)),
    ]


def test_a_record_with_more_fields_than_today_is_read_without_them() -> None:
    body = bytes([1]) + msgspec.msgpack.encode([["dj", "job-1", "something new"]])
    assert decode_record(body) == [DropJob(JobId("job-1"))]


def begins(now: Any, then: Any) -> bool:
    """Whether a value is the recorded one, but for fields that were appended to it since."""
    if isinstance(then, dict) and isinstance(now, dict):
        return list(now)[: len(then)] == list(then) and all(begins(now[n], then[n]) for n in then)
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(begins, now, then))
    return bool(now == then)


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)
def test_a_journal_that_was_recorded_is_read_as_it_was_meant(path: Path) -> None:
    for kind, meant, body in recorded(path):
        now = named(FORMS[kind][2](body))
        assert begins(now, meant), f"{now}\nwas recorded as\n{meant}"


def test_the_newest_recorded_journal_is_written_to_the_byte_as_then() -> None:
    seen = defaultdict(set)
    for kind, meant, body in recorded(recordings()[-1]):
        _, encode, decode = FORMS[kind]
        assert named(decode(body)) == meant, RECORD
        assert encode(decode(body)) == body, RECORD
        seen[kind].add(meant[""])
    for kind, (union, *_) in FORMS.items():
        assert seen[kind] == {one.__struct_config__.tag for one in get_args(union)}, RECORD


@given(history=histories)
def test_a_record_that_was_written_is_read_back(history: list[list[AnyWrite]]) -> None:
    for writes in history:
        assert decode_record(encode_record(writes)) == writes


def test_a_record_of_a_later_version_names_the_cure() -> None:
    with pytest.raises(NewerRecordError, match=f"version {VERSION + 1}.*upgrade this one"):
        decode_record(bytes([VERSION + 1]) + b"\x90")


@pytest.mark.parametrize(
    "writes",
    [
        [["zz", "job-1"]],
        [["dj", "job-1"], ["zz", 1]],
        [["m", "job-1", ["asleep"]]],
        [["dj", {"id": "job-1"}]],
    ],
    ids=["a kind", "a kind among others", "a state", "a shape"],
)
def test_a_record_of_a_later_program_is_told_apart_from_damage(writes: object) -> None:
    with pytest.raises(NewerRecordError, match="upgrade this one"):
        decode_record(bytes([1]) + msgspec.msgpack.encode(writes))


def test_more_fields_are_skipped_wherever_they_are() -> None:
    """As a later program writes them: at the end of every struct, also of those within others."""
    plain = msgspec.msgpack.decode(VERSION_1[1:])

    def longer(value: object, model: object) -> object:
        """The same with one more field, where the struct it is read as has no more."""
        if isinstance(model, msgspec.Struct):
            names = model.__struct_fields__
            tag = model.__struct_config__.tag is not None
            fields = list(value) if isinstance(value, list) else []
            own = fields[:1] if tag else []
            inner = fields[1:] if tag else fields
            kept = [
                longer(one, getattr(model, name)) for one, name in zip(inner, names, strict=False)
            ]
            missing = [msgspec.to_builtins(getattr(model, name)) for name in names[len(inner) :]]
            return [*own, *kept, *missing, "from tomorrow"]
        if isinstance(value, list) and isinstance(model, tuple):
            return [longer(one, part) for one, part in zip(value, model, strict=True)]
        return value

    tomorrow = [longer(one, meant) for one, meant in zip(plain, MEANT, strict=True)]
    assert decode_record(bytes([1]) + msgspec.msgpack.encode(tomorrow)) == MEANT


@pytest.mark.parametrize("body", [b"", VERSION_1[:-1], b"\x01\xc1"])
def test_a_damaged_record_is_no_riddle(body: bytes) -> None:
    with pytest.raises(StoreError, match="damaged"):
        decode_record(body)
