"""Requests as they are built."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.sdk import calls
from rota.sdk.calls import JobSearch
from rota.sdk.methods import admin_calls
from rota.wire.formats import Duration, dec_hook
from rota.wire.jobs import BatchSpec, JobSpec, Noop, RetrySpec
from rota.wire.tokens import TokenSpec


def test_a_job_may_be_a_mapping_or_the_typed_record() -> None:
    loose = calls.submit({"name": "a", "task": {"kind": "noop"}, "timeout": Duration(90_000)})
    typed = calls.submit(JobSpec(name="a", task=Noop(), timeout=Duration(90_000)))
    specs = [
        msgspec.json.decode(call.body or b"", type=JobSpec, dec_hook=dec_hook)
        for call in (loose, typed)
    ]
    assert specs[0] == specs[1]
    assert loose.keyed


def test_a_typed_record_says_nothing_of_a_longest_delay_that_nobody_gave() -> None:
    hour = Duration(3_600_000)
    typed = calls.submit(JobSpec(name="a", task=Noop(), retry=RetrySpec(delay=hour)))
    heard = msgspec.json.decode(typed.body or b"", type=JobSpec, dec_hook=dec_hook)
    assert heard.retry.longest_delay == hour


def test_a_dry_run_is_the_same_request_with_a_flag_and_no_key() -> None:
    job = {"name": "a", "task": {"kind": "noop"}}
    for dry, real in (
        (calls.dry_run(job), calls.submit(job)),
        (calls.dry_run_batch([job]), calls.submit_batch([job])),
    ):
        assert (dry.method, dry.path, dry.body) == (real.method, real.path, real.body)
        assert (dry.params, dry.keyed) == ((("dry_run", "true"),), False)


def test_a_batch_keeps_refs_and_order() -> None:
    job = {"name": "a", "task": {"kind": "noop"}}
    call = calls.submit_batch([{**job, "ref": "x"}, {**job, "dependencies": ["ref:x"]}])
    spec = msgspec.json.decode(call.body or b"", type=BatchSpec, dec_hook=dec_hook)
    assert spec.jobs[0].ref == "x"
    assert spec.jobs[1].dependencies == ["ref:x"]


def test_a_search_names_only_what_was_asked_for() -> None:
    search = JobSearch(status=("failed", "expired"), labels={"team": "a", "x": "y"}, limit=7)
    assert search.params() == (
        ("status", "failed,expired"),
        ("limit", "7"),
        ("label", "team:a"),
        ("label", "x:y"),
    )


def test_a_name_with_slashes_stays_one_segment_of_the_path() -> None:
    assert calls.get_queue("../jobs?x=1").path == "/queues/..%2Fjobs%3Fx%3D1"


def test_only_writes_that_would_act_twice_carry_a_key() -> None:
    assert calls.cancel_job("x").keyed
    assert admin_calls.create_token(TokenSpec(role="viewer")).keyed
    assert not calls.get_job("x").keyed
    assert calls.delete_job("x", force=True).params == (("force", "true"),)
    assert calls.delete_job("x").params == ()


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_minted_id_is_a_uuid_of_version_7_that_carries_its_moment(ms: int, dice: bytes) -> None:
    minted = uuid.UUID(calls.uuid7(ms, dice))
    assert minted.version == 7
    assert minted.variant == uuid.RFC_4122
    assert minted.int >> 80 == ms


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_ids_of_one_moment_differ_by_their_random_bytes(one: bytes, other: bytes) -> None:
    # Six of the eighty bits are the version's and the variant's.
    same = int.from_bytes(one, "big") % 2**74 == int.from_bytes(other, "big") % 2**74
    assert (calls.uuid7(1, one) == calls.uuid7(1, other)) == same


def test_an_id_tells_when_it_was_made() -> None:
    minted = calls.uuid7(1_760_000_000_123, bytes(10))
    moment = datetime.fromisoformat(calls.uuid7_time(minted, later_ms=-123))
    assert moment == datetime.fromtimestamp(1_760_000_000, UTC)
