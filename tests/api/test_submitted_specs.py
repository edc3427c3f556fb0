"""Conversion of entries of `rota.submit`: every one becomes a job, if only one that failed."""

from __future__ import annotations

import msgspec
import pytest

from rota.api.cluster.leaderless_submit import SubmittedSpecs
from rota.core.commands import NewJob, Reject, Submit
from rota.core.model import JobId
from rota.engine.inbox import UnreadableEntryError
from rota.store.protocol import InboxEntry, InboxKind
from tests.engine.clocks import FakeClock

JOB = "019a85bf-0000-7000-8000-000000000001"


def entry_of(spec: bytes, **fields: object) -> InboxEntry:
    """Makes an entry as `rota.submit` does."""
    body = b'{"spec": ' + spec + b', "job_id": "' + JOB.encode() + b'"}'
    entry = InboxEntry(1, InboxKind.SPEC, body, (JobId(JOB),))
    return msgspec.structs.replace(entry, **fields)


def refused(entry: InboxEntry) -> tuple[NewJob, str]:
    """Returns the job that shows the refusal, and its reason."""
    event = SubmittedSpecs(FakeClock())(entry)
    assert isinstance(event, Reject)
    (job,) = event.jobs
    assert job.id == JOB
    return job, event.why


def nested(depth: int) -> bytes:
    return b'{"name": "n", "payload": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    "spec",
    [
        b'{"name": "n"}',
        nested(64),
        b'{"name": "n", "payload": [1' + b"0" * 400 + b"]}",
        b'{"name": "old", "name": "n"}',
        b'{"name": "n", "payload": ["\\u0000"]}',
    ],
)
def test_a_valid_job_is_submitted_under_its_id(spec: bytes) -> None:
    event = SubmittedSpecs(FakeClock())(entry_of(spec))
    assert isinstance(event, Submit)
    (job,) = event.jobs
    assert (job.id, job.spec.terms.name) == (JOB, "n")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (nested(70), "payload: nested deeper than 64"),
        (b'{"name": "n", "payload": [1e400]}', "payload: not valid JSON: Number out of range"),
        (b'{"name": "n", "payload": [1' + b"0" * 5_000 + b"]}", "payload: not valid JSON: Integer"),
        (b'{"name": "n", "payload": ["\xff"]}', "payload: not valid JSON: 'utf-8' codec"),
        (b'{"name": "n", "priority": 1e400}', "Number out of range"),
        (b'{"name": "n", "colour": 1}', "colour: unknown field"),
    ],
)
def test_an_invalid_job_is_rejected_under_its_name(spec: bytes, why: str) -> None:
    job, reason = refused(entry_of(spec))
    assert reason.startswith(why) or why in reason
    assert job.spec.terms.name == "n"


@pytest.mark.parametrize(
    "spec",
    [
        nested(100_000),
        b'{"name": "n", "payload": ["\\ud800"]}',
        b"5",
        b"[]",
        b'{"name": 5}',
        b'{"name": "\\u0000"}',
        b'{"name": "\xff"}',
        b'{"name": ""}',
        b'{"name": "' + b"n" * 300 + b'"}',
        b"{",
        b"",
    ],
)
def test_a_job_whose_name_is_not_known_is_rejected_all_the_same(spec: bytes) -> None:
    job, reason = refused(entry_of(spec))
    assert job.spec.terms.name == "invalid"
    assert reason


def test_an_entry_that_was_not_read_because_of_its_size_is_rejected() -> None:
    job, reason = refused(entry_of(b"", body=b"", is_too_large=True))
    assert (job.spec.payload, reason) == (b"{}", "it is larger than any job may be")


@pytest.mark.parametrize("body", [b"{}", b'{"job_id": "\\u0000", "spec": {"name": "n"}}'])
def test_an_entry_that_names_no_job_is_not_readable(body: bytes) -> None:
    with pytest.raises(UnreadableEntryError, match="which job"):
        SubmittedSpecs(FakeClock())(InboxEntry(1, InboxKind.SPEC, body))
