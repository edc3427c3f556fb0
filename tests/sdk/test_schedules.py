"""Schedules from Python: declared beside functions, deployed, retired; and every call of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from rota.sdk import App, AsyncClient, Client, ConflictError, InvalidError, NotFoundError
from tests.api.in_process_server import TOKEN
from tests.sdk.real_server import real_server

JOB = {"name": "report", "task": {"kind": "noop"}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real_server() as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, TOKEN) as opened:
        yield opened
        for one in opened.schedules():
            opened.delete_schedule(one.schedule_id)


def program(url: str) -> App:
    return App(url, TOKEN, queue="reports")


def test_a_decorated_function_is_scheduled_on_deploy(url: str, client: Client) -> None:
    app = program(url)

    @app.cron("0 9 * * MON-FRI", tz="Europe/Berlin", args=[30], overlap="skip", gap="shift")
    @app.job(retries=2)
    def report(days: int) -> None: ...

    @app.every("15m", after="finish")
    def sync() -> None: ...

    done = app.deploy("shop")
    assert (done.created, done.retired) == (["report", "sync"], [])
    by_name = {one.name: one for one in client.schedules(owner="shop")}
    daily = by_name["report"]
    assert (daily.cron, daily.timezone, daily.overlap) == (
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        "skip",
    )
    assert (daily.dst.gap, daily.job["queue"]) == ("shift", "reports")
    assert daily.job["payload"] == {"args": [30], "kwargs": {}}
    assert daily.job["retry"]["max_attempts"] == 3
    assert (by_name["sync"].interval, by_name["sync"].origin) == (900, "finish")
    app.close()


def test_taking_the_decorator_away_retires_the_schedule(url: str, client: Client) -> None:
    before, after = program(url), program(url)
    for app in (before, after):

        @app.cron("@daily")
        def kept() -> None: ...

    @before.every(timedelta(hours=1))
    def dropped() -> None: ...

    before.deploy("shop")
    done = after.deploy("shop")
    assert (done.unchanged, done.retired) == (["kept"], ["dropped"])
    assert [one.name for one in client.schedules()] == ["kept"]
    before.close()
    after.close()


def test_a_schedule_that_a_person_made_is_not_taken_over(url: str, client: Client) -> None:
    client.create_schedule({"name": "mine", "cron": "@daily", "job": JOB})
    app = program(url)

    @app.cron("@hourly")
    def mine() -> None: ...

    with pytest.raises(ConflictError, match="take another name"):
        app.deploy("shop")
    app.close()


def test_declaring_asks_no_server_and_the_function_stays_one() -> None:
    app = App("http://127.0.0.1:1", "x")

    @app.cron("@hourly", name="hourly-add", kwargs={"a": 1, "b": 2})
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3
    assert app.functions["add"] is add
    assert app.declared["hourly-add"]["job"]["name"] == "add"


def test_one_function_may_have_several_schedules_by_name() -> None:
    app = App("http://127.0.0.1:1", "x")

    @app.cron("@daily", name="nightly")
    @app.every("10m", name="often")
    def work() -> None: ...

    assert list(app.declared) == ["often", "nightly"]
    with pytest.raises(ValueError, match="name the second one"):
        app.cron("@weekly", name="nightly")(work)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"overlap": "sometimes"}, "overlap"),
        ({"jitter": "soon"}, "not a duration"),
        ({"max_concurrency": 0}, "max_concurrency"),
    ],
)
def test_a_bad_option_is_found_when_the_module_is_loaded(
    options: dict[str, Any], words: str
) -> None:
    app = App("http://127.0.0.1:1", "x")
    with pytest.raises(ValueError, match=words):

        @app.cron("@daily", **options)
        def work() -> None: ...


def test_an_option_that_does_not_exist_is_named() -> None:
    app = App("http://127.0.0.1:1", "x")
    with pytest.raises(TypeError, match="did you mean 'overlap'"):
        app.cron("@daily", overlapp="skip")  # type: ignore[call-arg]


def test_every_call_has_its_method(client: Client) -> None:
    client.set_calendar("de", ["2026-12-25"])
    made = client.create_schedule(
        {"name": "all", "cron": "@yearly", "job": JOB, "paused": True, "calendars": ["de"]}
    )
    identity = made.schedule_id
    assert client.schedule(identity) == made
    assert client.update_schedule(identity, {"overlap": "skip"}).overlap == "skip"
    assert client.resume_schedule(identity).status == "active"
    assert client.pause_schedule(identity).status == "paused"
    line = client.trigger_schedule(identity)
    assert client.occurrences(identity).items == [line]
    assert len(client.preview_schedule(identity, count=3)) == 3
    assert len(client.preview({"cron": "@daily"}, count=2)) == 2
    past = {"from": "2020-01-01T00:00:00Z", "to": "2022-01-01T00:00:00Z"}
    run = client.backfill(identity, past)
    assert run.count == 3
    assert client.cancel_backfill(identity, run.backfill_id or "") == 3
    assert [one.name for one in client.calendars()] == ["de"]
    assert client.calendar("de").schedules == 1
    client.delete_schedule(identity)
    client.delete_calendar("de")
    with pytest.raises(NotFoundError):
        client.schedule(identity)
    with pytest.raises(InvalidError, match="FEB"):
        client.create_schedule({"name": "never", "cron": "0 0 30 2 *", "job": JOB})


def test_the_asynchronous_client_has_them_too(url: str, client: Client) -> None:
    async def walk() -> None:
        async with AsyncClient(url, TOKEN) as rota:
            made = await rota.create_schedule({"name": "later", "interval": "1h", "job": JOB})
            assert [one.name for one in await rota.schedules(name="later")] == ["later"]
            assert (await rota.trigger_schedule(made.schedule_id)).cause == "trigger"
            assert (await rota.preview_schedule(made.schedule_id, count=1))[0].at
            await rota.delete_schedule(made.schedule_id)

    asyncio.run(walk())
