"""Rows as records: what is read in bulk shares what it can; and tokens of newer programs."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.model import JobId, JobRecord, JobState, Life, Spec
from rota.store.checksums import CRC_BYTES, sealed
from rota.store.projection.bulk_decode import BulkDecoder, EncodedBatch, EncodedSpec
from rota.store.rows import Row, to_tokens, token_row
from tests.core.asking import spec
from tests.example_counts import examples
from tests.store.conformance_tokens import token

encode = msgspec.msgpack.encode
QUEUED = encode(Life(JobState.QUEUED))


def _row(job_id: str) -> Row:
    return _stored_row(job_id, QUEUED, encode(spec(priority=1)))


def _stored_row(job_id: str, life: bytes, asked: bytes) -> Row:
    return (JobId(job_id), sealed(job_id, life), sealed(job_id, asked))


def _crcs(ids: list[JobId], bodies: list[bytes]) -> bytes:
    return b"".join(sealed(one, body)[-CRC_BYTES:] for one, body in zip(ids, bodies, strict=True))


def test_alike_jobs_share_all_but_their_ids() -> None:
    first, second = BulkDecoder().jobs([_row("a"), _row("b")], [])
    assert first.spec == second.spec == spec(priority=1)
    assert first.life is second.life
    for field in ("terms", "task", "payload", "created_at"):
        assert getattr(first.spec, field) is getattr(second.spec, field), field


def test_a_job_read_among_others_has_all_that_was_stored_of_it() -> None:
    asked = [
        replace(spec(priority=1, labels=[("team", "billing")]), payload=b"[1]", trace="00-abc"),
        replace(spec(priority=2, run_at=5, created_at=7), task=b"{}", arrival_number=9),
        replace(spec(priority=2, key="k", limit=3), revision=4, graph_ms=8),
        spec(priority=1, finish_by=9, expires_at=11, count=3),
    ]
    life = Life(JobState.QUEUED, line=7)
    jobs = [JobRecord(JobId(f"j{number}"), one, life) for number, one in enumerate(asked)]
    stored = [(*_stored_row(one.id, encode(one.life), encode(one.spec)), "more") for one in jobs]
    assert BulkDecoder().jobs(stored, []) == jobs


def test_jobs_are_a_batch_only_if_their_arrival_number_was_cut_out() -> None:
    asked = replace(spec(created_at=7), arrival_number=70_000, payload=b"70_000 or 70_001")
    data = encode(asked)
    ids, orders = [JobId("a"), JobId("b")], [70_000, 70_001]
    for number in (encode(asked.arrival_number), asked.payload):
        start = data.index(number) + 1
        form = EncodedSpec(len(data), data[:start], 4, data[start + 4 :])
        specs = [form.encoded(order) for order in orders]
        crcs = _crcs(ids, [QUEUED, QUEUED]), _crcs(ids, specs)
        batch = BulkDecoder().batch(EncodedBatch(QUEUED, form, ids, orders, *crcs))
        if number is asked.payload:
            assert batch is None
        else:
            assert batch == [
                JobRecord(one, replace(asked, arrival_number=order), Life(JobState.QUEUED))
                for one, order in zip(ids, orders, strict=True)
            ]


def _stored(order: int, created_at: int, payload: bytes, trace: str, version: int) -> bytes:
    """As this program, the one before or the next stores it."""
    asked = replace(spec(created_at=created_at), arrival_number=order, payload=payload, trace=trace)
    whole = msgspec.msgpack.decode(encode(asked))
    return encode([*whole, "what is that?"] if version > 0 else whole[: len(whole) + 4 * version])


SPECS = st.builds(
    _stored,
    # About where a number becomes longer.
    st.sampled_from([0, 127, 128, 255, 256, 65_535, 65_536, 70_000, 2**32 - 1, 2**32, 2**40]),
    st.sampled_from([7, 1_700_000_000_000]),
    st.sampled_from([b"", b"\xce\x00\x00\x01\x00"]),
    st.sampled_from(["", "00-abc"]),
    st.sampled_from([-3, 0, 0, 1]),
)


@settings(max_examples=examples(100, 2000), deadline=None)
@given(st.lists(SPECS, max_size=12))
def test_a_job_is_read_after_any_others_as_it_would_be_alone(stored: list[bytes]) -> None:
    read = BulkDecoder().jobs([_stored_row("a", QUEUED, data) for data in stored], [])
    assert [job.spec for job in read] == [
        msgspec.msgpack.decode(data, type=Spec) for data in stored
    ]


def test_damaged_rows_are_left_out_of_what_is_read_in_bulk() -> None:
    rows = [_row(f"j{number}") for number in range(9)]
    other_type, of_another = (rows[2][0], 5, rows[2][2]), (rows[4][0], *rows[5][1:])
    flipped = (rows[7][0], rows[7][1], rows[7][2][:-9] + b"?" + rows[7][2][-8:])
    damaged: list[Row] = []
    read = BulkDecoder().jobs(
        [*rows[:2], other_type, rows[3], of_another, *rows[5:7], flipped, rows[8]], damaged
    )
    assert [job.id for job in read] == ["j0", "j1", "j3", "j5", "j6", "j8"]
    assert damaged == [other_type, of_another, flipped]


def test_a_batch_with_a_damaged_job_is_read_one_by_one() -> None:
    asked = replace(spec(created_at=7), arrival_number=70_000)
    data, ids, orders = encode(asked), [JobId("a"), JobId("b")], [70_000, 70_001]
    start = data.index(encode(70_000)) + 1
    form = EncodedSpec(len(data), data[:start], 4, data[start + 4 :])
    lives = _crcs(ids, [QUEUED, QUEUED])
    specs = _crcs(ids, [form.encoded(order) for order in orders])
    assert BulkDecoder().batch(EncodedBatch(QUEUED, form, ids, orders, lives, specs)) is not None
    for crcs in ((lives[::-1], specs), (lives, specs[:-1] + b"?"), (lives[4:], specs)):
        assert BulkDecoder().batch(EncodedBatch(QUEUED, form, ids, orders, *crcs)) is None


def test_a_role_that_only_a_newer_program_knows_opens_nothing_and_harms_nobody() -> None:
    strange = list(token_row(token(2)))
    strange[3] = "emperor"
    assert to_tokens([token_row(token(1)), tuple(strange)]) == [token(1)]
