"""Submissions by SQL (`rota.submit`): what cannot be accepted is set aside, the rest goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import pytest

from rota.api.cluster.leaderless_submit import LeaderlessInbox, SubmittedSpecs
from rota.api.limits import JSON_DEPTH_MAX
from rota.core.commands import Timing
from rota.core.model import JobId, JobRecord, JobState
from rota.engine.clock import SystemClock
from rota.engine.leadership import CellMember
from rota.engine.limits import EngineLimits
from rota.engine.loop import Engine
from rota.engine.metrics import Metrics
from rota.engine.ports import UnavailableError
from rota.store.limits import INBOX_SPEC_BYTES_MAX
from rota.store.postgres.durability import check_up
from rota.store.postgres.store import PostgresStore
from rota.wire.limits import BODY_BYTES_MAX
from tests.engine.rig import PATIENCE_S, until
from tests.postgres.cell import Cell, migrated_cell

pytestmark = pytest.mark.postgres

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SUBMIT = "SELECT rota.submit($1::text::jsonb)::text"
LOOK = "SELECT id::text, state, reason FROM rota.submissions ORDER BY id"
PUT_BY_HAND = """
INSERT INTO rota.inbox (kind, body, job_ids, submitted_by)
SELECT 'spec', convert_to('{"job_id": "' || id || '", "spec": ', 'UTF8') || $2 || '}', ARRAY[id], $1
FROM (SELECT rota.new_id()::text) made (id) RETURNING job_ids[1]
"""
"""Puts what `rota.submit` would refuse at once, as an older one does not."""
GOOD = json.dumps({"name": "good", "payload": []})


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


@asynccontextmanager
async def leading(store: PostgresStore) -> AsyncIterator[Engine]:
    """Starts a server of a cell, and waits until it leads."""
    limits = EngineLimits(durable_inbox_look_s_min=0.01, durable_inbox_look_s_max=0.01)
    member = CellMember(node="node-a", ttl_ms=60_000, limits=limits)
    engine = Engine(store, SystemClock(), Timing(), Metrics(), member)
    await engine.start(SubmittedSpecs(engine.clock))
    try:
        await until(lambda: engine.ready)
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def application(
    cell: Cell, name: str = "app", *, sees: bool = True
) -> AsyncIterator[Connection]:
    """Connects as a role that may submit, and see what became of it, and do nothing else."""
    role = f"{name}_{cell.database}"
    async with cell.connected() as admin:
        if not await admin.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
            await admin.execute(f"CREATE ROLE {role} LOGIN")
        await admin.execute(f"GRANT USAGE ON SCHEMA rota TO {role}")
        await admin.execute(f"GRANT EXECUTE ON FUNCTION rota.submit(jsonb) TO {role}")
        if sees:
            await admin.execute(f"GRANT SELECT ON rota.submissions TO {role}")
    connection = await asyncpg.connect(cell.dsn, user=role)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


async def put_by_hand(cell: Cell, application: Connection, spec: bytes) -> str:
    """Puts an entry of an application beside `rota.submit`; returns the job's id."""
    role = await application.fetchval("SELECT session_user::text")
    return str(await cell.ask(PUT_BY_HAND, role, spec))


async def known(store: PostgresStore, job_id: str) -> JobRecord:
    """Waits for a job to be in the tables."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await store.queries.jobs([JobId(job_id)])):  # noqa: ASYNC110  (nobody announces it)
            await asyncio.sleep(0.01)
    return found[0]


def nested(depth: int) -> str:
    return '{"name": "deep", "payload": ' + "[" * depth + "]" * depth + "}"


async def test_a_payload_nested_too_deeply_stops_neither_later_jobs_nor_the_next_leader(
    cell: Cell,
) -> None:
    async with cell.opened() as store, application(cell) as app:
        bad = await put_by_hand(cell, app, nested(70).encode())
        for _ in range(2):
            async with leading(store):
                good = await known(store, await app.fetchval(SUBMIT, GOOD))
                assert good.life.state is JobState.QUEUED
        refused = await known(store, bad)
        assert refused.life.state is JobState.FAILED
        assert b"payload: nested deeper than 64" in (refused.life.error or b"")
        assert [tuple(row) for row in await app.fetch(LOOK)] == [
            (bad, "refused", "payload: nested deeper than 64")
        ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (b'{"name": "n", "payload": [1e400]}', "Number out of range"),
        (b'{"name": "n", "payload": ["\\ud800"]}', "cannot be read"),
        (b'{"name": "n", "payload": ["\xff"]}', "not valid JSON: 'utf-8' codec"),
        (b'{"name": "\\u0000"}', "control characters"),
        (b'{"name": "n", "colour": "\\u0000"}', "colour: unknown field"),
        (b'{"\\u0000": 1, "name": "n"}', "unknown field `\N{REPLACEMENT CHARACTER}`"),
        (nested(100_000).encode(), "nested too deeply"),
        (b"", "cannot be read"),
        (b"x" * INBOX_SPEC_BYTES_MAX, "larger than any job may be"),
    ],
    ids=lambda given: given[-20:] if isinstance(given, str) else "",
)
async def test_what_an_application_put_beside_the_function_is_refused_with_a_reason(
    cell: Cell, spec: bytes, reason: str
) -> None:
    async with cell.opened() as store, application(cell) as app:
        bad = await put_by_hand(cell, app, spec)
        good = await app.fetchval(SUBMIT, GOOD)
        async with leading(store):
            await known(store, good)
            assert (await known(store, bad)).life.state is JobState.FAILED
        ((job_id, state, why),) = await app.fetch(LOOK)
        assert (job_id, state) == (bad, "refused")
        assert reason in why


@pytest.mark.parametrize(
    "spec",
    [
        '{"name": "n", "payload": [1e400]}',
        '{"name": "n", "name": "n", "payload": []}',
        '{"name": "n", "payload": [1e130000]}',
    ],
)
async def test_what_the_function_takes_becomes_a_job_whatever_it_says(
    cell: Cell, spec: str
) -> None:
    async with cell.opened() as store, application(cell) as app:
        job_id = await app.fetchval(SUBMIT, spec)
        async with leading(store):
            assert (await known(store, job_id)).spec.terms.name == "n"


@pytest.mark.parametrize("spec", ['{"name": "\\u0000"}', '{"payload": ["\\ud800"]}', '{"n": NaN}'])
async def test_the_database_refuses_text_that_is_no_valid_json(cell: Cell, spec: str) -> None:
    async with application(cell) as app:
        with pytest.raises(
            (asyncpg.UntranslatableCharacterError, asyncpg.InvalidTextRepresentationError)
        ):
            await app.fetchval(SUBMIT, spec)


async def test_the_function_refuses_at_once_what_is_nested_deeper_than_any_job(cell: Cell) -> None:
    inner = "[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX
    task = (
        '{"name": "n", "task": {"kind": "http", "url": "http://a", "method": "POST", "body": %s}}'
    )
    async with cell.opened() as store, application(cell) as app:
        deepest = await app.fetchval(SUBMIT, task % inner)
        for spec in (task % f"[{inner}]", nested(70), nested(1_000)):
            with pytest.raises(asyncpg.ProgramLimitExceededError, match="nested at most 66 levels"):
                await app.fetchval(SUBMIT, spec)
        async with leading(store):
            assert (await known(store, deepest)).life.state is JobState.QUEUED


async def test_the_function_refuses_at_once_what_is_larger_than_a_request_may_be(
    cell: Cell,
) -> None:
    async with application(cell) as app:
        spec = '{"payload": "%s"}'
        most = BODY_BYTES_MAX - len(spec % "")
        await app.fetchval(SUBMIT, spec % ("x" * most))
        with pytest.raises(asyncpg.ProgramLimitExceededError, match=f"at most {BODY_BYTES_MAX}"):
            await app.fetchval(SUBMIT, spec % ("x" * (most + 1)))


async def test_a_job_refused_by_the_scheduler_is_shown_to_its_submitter(cell: Cell) -> None:
    async with cell.opened() as store, application(cell) as app:
        nowhere = "019a85bf-0000-7000-8000-000000000009"
        spec = json.dumps({"name": "n", "payload": [], "dependencies": [nowhere]})
        job_id = await app.fetchval(SUBMIT, spec)
        async with leading(store):
            await known(store, job_id)
        assert [tuple(row) for row in await app.fetch(LOOK)] == [
            (job_id, "refused", f"there is no job {nowhere} to depend on")
        ]


async def test_a_submitter_sees_what_waits_and_what_was_refused_and_only_its_own(
    cell: Cell,
) -> None:
    async with (
        cell.opened() as store,
        application(cell) as app,
        application(cell, "other") as other,
    ):
        good = await app.fetchval(SUBMIT, GOOD)
        bad = await app.fetchval(SUBMIT, '{"name": "n", "priority": "high"}')
        async with app.transaction():
            unseen = await app.fetchval(SUBMIT, GOOD)
            assert (
                await app.fetchval(
                    "SELECT state FROM rota.submissions WHERE id = $1::text::uuid", unseen
                )
                == "pending"
            )
        states = {row[0]: row[1] for row in await app.fetch(LOOK)}
        assert states == dict.fromkeys((good, bad, unseen), "pending")
        assert await other.fetch(LOOK) == []
        async with leading(store):
            await known(store, unseen)
        assert {row[0]: row[1] for row in await app.fetch(LOOK)} == {bad: "refused"}
        assert await other.fetch(LOOK) == []


async def test_a_submitter_cannot_see_others_through_a_function_in_its_condition(
    cell: Cell,
) -> None:
    spy = """
    CREATE FUNCTION pg_temp.spy(reason text) RETURNS bool COST 0.0000001 LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'seen: %', reason; END $$
    """
    async with cell.opened() as store, application(cell) as app, application(cell, "spy") as other:
        bad = await app.fetchval(SUBMIT, '{"name": "n", "priority": "high"}')
        async with leading(store):
            await known(store, bad)
        for each in (app, other):
            await each.execute(spy)
        look = "SELECT * FROM rota.submissions WHERE pg_temp.spy(reason)"
        assert await other.fetch(look) == []
        with pytest.raises(asyncpg.RaiseError, match="seen: "):
            await app.fetch(look)


async def test_a_role_that_may_only_submit_reads_no_table_and_no_view(cell: Cell) -> None:
    async with application(cell, "blind", sees=False) as app:
        await app.fetchval(SUBMIT, GOOD)
        for name in ("submissions", "inbox", "inbox_set_aside"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.fetch(f"SELECT * FROM rota.{name}")


async def test_an_entry_of_an_unknown_kind_stays_and_its_job_answers_why(cell: Cell) -> None:
    job_id = JobId("019a85bf-0000-7000-8000-000000000001")
    async with cell.opened() as store, application(cell) as app:
        inbox = LeaderlessInbox(store, SystemClock())
        await cell.run(
            "INSERT INTO rota.inbox (kind, body, key, job_ids)"
            f" VALUES ('later', '', 'k', ARRAY['{job_id}'])"
        )
        with pytest.raises(UnavailableError, match="no inbox entries of kind 'later'"):
            await inbox.find(job_id)
        async with leading(store):
            await known(store, await app.fetchval(SUBMIT, GOOD))
        with pytest.raises(UnavailableError, match=r"waits for the next leader: .* kind 'later'"):
            await inbox.find(job_id)


async def test_a_checkup_counts_what_was_set_aside_and_says_the_newest_reason(cell: Cell) -> None:
    async with cell.opened() as store, application(cell) as app:
        assert (await check_up(cell.dsn)).set_aside == 0
        async with leading(store):
            for name in ("first", "second"):
                await known(store, await app.fetchval(SUBMIT, json.dumps({"name": "n", name: 1})))
            left = await store.journal.put_inbox(b"of a newer server")
            await known(store, await app.fetchval(SUBMIT, GOOD))
        found = await check_up(cell.dsn)
        assert (found.set_aside, found.set_aside_reason[:27]) == (3, "this server cannot read it:")
        await store.journal.drop_inbox([left.id])  # as when a newer server accepts it
        found = await check_up(cell.dsn)
        assert found.set_aside == 2
        assert found.set_aside_reason.startswith("second: unknown field")
